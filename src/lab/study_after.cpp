#include "lab/study_after.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "lab/summary.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

// Of those that fit, the recipe of the lowest loss; none: null.
template <class Fits>
const Json* best_of(const std::vector<Json>& records, Fits fits) {
  const Json* best = nullptr;
  double loss = 0;
  for (const RecipeSummary& recipe : summarize(records)) {
    if (!fits(*recipe.first) || (best != nullptr && recipe.top_k.mean >= loss)) continue;
    best = recipe.first;
    loss = recipe.top_k.mean;
  }
  return best;
}

// An option of a record's run: as it was changed, else its default.
template <class T>
T option_of(const Json& record, const char* section, const char* key, T otherwise) {
  return record.at("changed").value(section, Json::object()).value(key, otherwise);
}

}  // namespace

const Json& best_dense(const std::vector<Json>& records, double budget) {
  const Json* best = best_of(records, [&](const Json& r) {
    return r["budget"] == budget && r["flops_per_token"] == r["dense_flops_per_token"];
  });
  require(best != nullptr,
          "there is no dense model of {:.3g} FLOPs among {} records; name the folder of an earlier study (--after)",
          budget, records.size());
  return *best;
}

void take_model(RunConfig& config, const Json& record) {
  const RoutingConfig routing = config.model.routing;
  config.model = ModelConfig();  // what the record does not name is at its default
  config.model.routing = routing;
  const Json model = record.at("changed").value("model", Json::object());
  for (const auto& [key, value] : model.items()) set_option(config, "model", key, value, "record");
}

double best_rate(const std::vector<Json>& records, double budget, int64_t width, const std::string& variant) {
  const auto fits = [&](const Json& r) {
    return r["variant"] == variant && option_of<int64_t>(r, "model", "hidden_size", ModelConfig().hidden_size) == width;
  };
  const auto distance = [&](const Json& r) { return std::abs(std::log(r["budget"].get<double>() / budget)); };
  double nearest = std::numeric_limits<double>::infinity();
  for (const Json& r : records)
    if (fits(r)) nearest = std::min(nearest, distance(r));
  const Json* best = best_of(records, [&](const Json& r) { return fits(r) && distance(r) == nearest; });
  require(
      best != nullptr,
      "there is no model of width {} and variant '{}' among {} records; name the folder of a study of learning rates "
      "(--after)",
      width, variant, records.size());
  return option_of(*best, "train", "learning_rate", 0.0);
}

const Json* trained_before(const std::vector<Json>& records, const std::string& run, uint64_t corpus) {
  for (const Json& r : records)
    if (r["run"] == run && r["corpus"] == fmt::format("{:016x}", corpus)) return &r;
  return nullptr;
}

}  // namespace isobath
