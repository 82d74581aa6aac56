#include "model/names.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "base/parallel.h"

namespace isobath {
namespace {

// The first few, then how many more.
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 3); i++) text += (i ? ", " : "") + names[i];
  if (names.size() > 3) text += fmt::format(" and {} more", names.size() - 3);
  return text;
}

// A rule's number may be infinite, which lies above or below every logit: a threshold where nothing was left out, an
// offset for no row or for all.
bool is_sound(CF32 w, Kind kind) {
  constexpr int64_t kChunk = 1 << 18;
  const float most = kind == Kind::kRule ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::max();
  std::atomic<bool> sound = true;
  parallel_for((w.numel() + kChunk - 1) / kChunk, 1, [&](int64_t chunk) {
    const float *begin = w.data + chunk * kChunk, *end = w.data + std::min(w.numel(), (chunk + 1) * kChunk);
    if (!std::all_of(begin, end, [most](float v) { return std::abs(v) <= most; })) sound = false;
  });
  return sound;
}

const float* may_lend(const TensorSource& source, const WeightInfo& info) {
  return info.kind == Kind::kEmbedding && source.lend ? source.lend(info.name, info.shape) : nullptr;
}

}  // namespace

std::string weight_not_finite(const WeightSet& set) {
  for (size_t i = 0; i < set.list().size(); i++)
    if (!set.at(i).empty() && !is_sound(set.at(i), set.list()[i].kind)) return set.list()[i].name;
  return "";
}

void read_weights(WeightSet& set, const TensorSource& source) {
  std::set<std::string> unread(source.names.begin(), source.names.end());
  std::vector<std::string> missing;
  for (size_t i = 0; i < set.list().size(); i++) {
    const std::string& name = set.list()[i].name;
    if (unread.erase(name) == 0)
      missing.push_back(name);
    else if (set.at(i).empty())
      source.look(name, set.at(i).shape);
    else if (const float* lies = may_lend(source, set.list()[i]); lies != nullptr)
      set.lend(i, lies);
    else
      source.read(name, set.at(i));
  }
  require(missing.empty(), "{}: the tensors {} are missing; config.json and the weights do not belong together",
          source.where, some_of(missing));
  std::vector<std::string> extra;
  for (const std::string& name : unread) {
    const bool tied = name == "lm_head.weight" && set.config().tie_word_embeddings;
    if (!tied && !name.ends_with("rotary_emb.inv_freq")) extra.push_back(name);
  }
  require(extra.empty(), "{}: the tensors {} are not part of the model that config.json describes", source.where,
          some_of(extra));
  if (const std::string name = weight_not_finite(set); !name.empty())
    fail_work("{}: the weight {} is not finite; the model is damaged, or its training diverged", source.where, name);
}

void copy_weights(WeightSet& to, const WeightSet& from) {
  for (size_t i = 0; i < from.list().size(); i++) {
    const WeightInfo& info = from.list()[i];
    size_t j = 0;
    while (j < to.list().size() && to.list()[j].name != info.name) j++;
    require(j < to.list().size(), "the model has no weight {} to copy to", info.name);
    require(to.list()[j].shape == info.shape, "{} has shape {}, expected {}", info.name, info.shape,
            to.list()[j].shape);
    std::copy_n(from.at(i).data, info.shape.numel(), to.at(j).data);
  }
}

}  // namespace isobath
