#include "train/train_only.h"

#include <fnmatch.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace isobath {
namespace {

constexpr const char* kExpertRouter = ".block_sparse_moe.gate.weight";  // Mixtral's name for it

bool matches(const std::string& name, const std::string& pattern) {
  if (pattern == "router" && name.ends_with(kExpertRouter)) return true;
  if (pattern.find_first_of("*?") == std::string::npos) return name.find(pattern) != std::string::npos;
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace

std::vector<uint8_t> trained_weights(const std::vector<WeightInfo>& list, std::string_view patterns) {
  std::vector<uint8_t> trained(list.size(), patterns.empty());
  while (!patterns.empty()) {
    const size_t comma = std::min(patterns.find(','), patterns.size());
    const std::string pattern(patterns.substr(0, comma));
    patterns.remove_prefix(std::min(comma + 1, patterns.size()));
    bool any = false, moves = false;
    for (size_t i = 0; i < list.size() && !pattern.empty(); i++) {
      if (!matches(list[i].name, pattern)) continue;
      any = true;
      moves |= !list[i].name.ends_with(".offset");
      trained[i] = 1;
    }
    require(any,
            "train.train_only: no weight of this model matches \"{}\"; names are those of model.safetensors, such as "
            "model.layers.1.mlp.up_proj.weight",
            pattern);
    require(moves,
            "train.train_only: \"{}\" matches only offsets, which no training moves but isobath calibrate sets; leave "
            "it out",
            pattern);
  }
  return trained;
}

int64_t count_trained(const ModelConfig& config, std::string_view patterns) {
  const WeightSet set(config, Allocate::kNo);
  const std::vector<uint8_t> trained = trained_weights(set.list(), patterns);
  int64_t n = 0;
  for (size_t i = 0; i < trained.size(); i++)
    if (trained[i] && is_trained(set.list()[i].kind)) n += set.list()[i].shape.numel();
  return n;
}

}  // namespace isobath
