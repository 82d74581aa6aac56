#include "model/names.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace isobath {
namespace {

// The first few, then how many more.
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 3); i++) text += (i ? ", " : "") + names[i];
  if (names.size() > 3) text += fmt::format(" and {} more", names.size() - 3);
  return text;
}

}  // namespace

void read_weights(WeightSet& set, const TensorSource& source) {
  std::set<std::string> unread(source.names.begin(), source.names.end());
  std::vector<std::string> missing;
  for (size_t i = 0; i < set.list().size(); i++) {
    const std::string& name = set.list()[i].name;
    if (unread.erase(name) == 0)
      missing.push_back(name);
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
