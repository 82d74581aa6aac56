// The list of runs that a study names.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "lab/shapes.h"
#include "lab/study.h"
#include "lab/study_after.h"
#include "model/config_unused.h"
#include "model/weights.h"
#include "train/budget.h"
#include "train/trainer.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

// What decides nothing of a result: where things lie, how often it is looked at, what is computed twice.
bool is_incidental(std::string_view key) {
  return key == "path" || key == "valid_path" || key == "tokenizer" || key == "out" || key == "keep" ||
         key == "threads" || key == "recompute" || key == "pack" || key.starts_with("eval_") ||
         key.starts_with("save_");
}

std::string hash_name(const Json& json) { return fmt::format("{:016x}", hash_bytes(json.dump())); }

Json deciding_options(const RunConfig& config) {
  Json changed = changed_options(config);
  for (auto& [section, options] : changed.items())
    for (auto at = options.begin(); at != options.end();) at = is_incidental(at.key()) ? options.erase(at) : ++at;
  for (const char* section : {"model", "routing", "experts", "data", "train"})
    if (changed.contains(section) && changed[section].empty()) changed.erase(section);
  return changed;
}

using Points = std::vector<const StudyPoint*>;

// Every combination of one point of each axis; the last axis changes fastest.
std::vector<Points> combinations(const std::vector<const std::vector<StudyPoint>*>& axes) {
  std::vector<Points> all{{}};
  for (const auto* axis : axes) {
    std::vector<Points> longer;
    for (const Points& before : all)
      for (const StudyPoint& point : *axis) {
        longer.push_back(before);
        longer.back().push_back(&point);
      }
    all = std::move(longer);
  }
  return all;
}

class Planner {
 public:
  Planner(const Study& study, const Tokenizer& tokenizer) : study_(study), vocabulary_(tokenizer.vocab_size()) {}

  RunConfig config(const Points& points, double budget, uint64_t seed) const {
    RunConfig c = unmatched(points, budget);
    if (const StudyPoint* variant = variant_of(points); variant != nullptr && !variant->flops_as.empty()) {
      const auto given = vocabulary_of(c.model);
      c.model = depth_of_flops(c.model, c.data.context, flops_to_match(points, *variant, budget));
      c.model.vocab_size = given;
    }
    if (study_.in_tokens)
      c.train.tokens = std::llround(budget);
    else
      c.train.flops = budget;
    c.train.seed = seed;
    if (study_.best_rates)
      c.train.learning_rate = best_rate(study_.after, budget, c.model.hidden_size, name_of_variant(points));
    return c;
  }

 private:
  // Counting needs the vocabulary, which is no option: it is set for the rule and taken back.
  int64_t vocabulary_of(ModelConfig& model) const { return std::exchange(model.vocab_size, vocabulary_); }

  const StudyPoint* variant_of(const Points& points) const { return study_.variants.empty() ? nullptr : points.back(); }
  std::string name_of_variant(const Points& points) const {
    const StudyPoint* variant = variant_of(points);
    return variant == nullptr ? "" : variant->name;
  }

  // A model of which nothing is routed has no routing, so that equal ones are known as equal.
  RunConfig unmatched(const Points& points, double budget) const {
    RunConfig c = study_.base;
    const StudyPoint* variant = variant_of(points);
    if (variant != nullptr && variant->flops_as == kBest) take_model(c, best_dense(study_.after, budget));
    for (const StudyPoint* point : points) {
      for (const Change& change : point->changes) set_option(c, change.section, change.key, change.value, change.place);
      if (point->parameters == 0) continue;
      const int64_t given = vocabulary_of(c.model);
      c.model = shape_of_parameters(c.model, point->parameters);
      c.model.vocab_size = given;
    }
    if (c.model.routing.topology == Topology::kDense) c.model.routing = RoutingConfig();
    return c;
  }

  // Per forward pass.
  double flops_to_match(const Points& points, const StudyPoint& variant, double budget) const {
    if (variant.flops_as == kBest)
      return best_dense(study_.after, budget).at("flops_per_token").get<double>() * double(study_.base.data.context);
    Points other = points;
    const auto found = std::find_if(study_.variants.begin(), study_.variants.end(),
                                    [&](const StudyPoint& v) { return v.name == variant.flops_as; });
    require(found != study_.variants.end() && found->flops_as.empty(),
            "flops_as = '{}': expected the name of a variant that has a depth of its own, or \"{}\"", variant.flops_as,
            kBest);
    other.back() = &*found;
    RunConfig c = unmatched(other, budget);
    vocabulary_of(c.model);
    resolve(c.model, c.data.context);
    return double(model_flops(c.model, 1, c.data.context).forward());
  }

  const Study& study_;
  int64_t vocabulary_;
};

std::string names_of(const Points& points) {
  std::vector<std::string> names;
  for (const StudyPoint* point : points) names.push_back(point->name);
  return names.empty() ? "its runs" : fmt::format("{}", fmt::join(names, ", "));
}

// Which points a run is of.
void name_points(PlannedRun& run, const Study& study, const Points& points) {
  if (!study.sizes.empty()) run.size = points.front()->name;
  if (!study.variants.empty()) run.variant = points.back()->name;
  run.grid = Json::object();
  for (size_t axis = 0; axis < study.grid.size(); axis++) {
    const Change& change = points[axis + (study.sizes.empty() ? 0 : 1)]->changes[0];
    run.grid[change.name()] = change.value;
  }
}

}  // namespace

PlannedRun plan_run(const RunConfig& config, const Tokenizer& tokenizer) {
  PlannedRun run;
  run.config = config;
  run.changed = deciding_options(config);
  run.name = hash_name(run.changed);
  Json recipe = run.changed;
  if (recipe.contains("train")) recipe["train"].erase("seed");
  run.recipe = hash_name(recipe);
  RunConfig full = config;
  if (full.data.path.empty()) full.data.path = "text";  // a plan needs none
  full = resolved(full, tokenizer);
  const double T = double(full.data.context);
  run.parameters = count_weights(full.model);
  run.flops_per_token = double(model_flops(full.model, 1, full.data.context).forward()) / T;
  run.dense_flops_per_token = double(model_flops(dense_twin(full.model), 1, full.data.context).forward()) / T;
  const RoutingConfig& r = full.model.routing;
  const bool ragged = r.capacity_scope == Scope::kDocument || r.attention_scope == Scope::kDocument;
  run.budget = ragged && full.train.flops > 0
                   ? plan_budget(full.model, full.data.batch, full.data.context, full.train.flops)
                   : budget_of(full, nullptr);
  return run;
}

Json telling_values(const Json& grid, const Json& changed) {
  const bool dense = changed.value("routing", Json::object()).value("topology", "") == name_of(Topology::kDense);
  Json telling = Json::object();
  for (const auto& [key, value] : grid.items())
    if (!dense || !key.starts_with("routing.") || key == "routing.topology") telling[key] = value;
  return telling;
}

std::string PlannedRun::label() const {
  std::string text = variant;
  const auto add = [&](const std::string& more) { text += (text.empty() || more.empty() ? "" : ", ") + more; };
  add(size);
  const Json values = telling_values(grid, changed);
  for (const auto& [key, value] : values.items())
    add(fmt::format("{} = {}", key.substr(key.find('.') + 1), value.dump()));
  add(fmt::format("{:.3g} {}, seed {}", asked(), config.train.flops > 0 ? "FLOPs" : "tokens", config.train.seed));
  return text;
}

std::vector<PlannedRun> plan_study(const Study& study, const Tokenizer& tokenizer) {
  std::vector<const std::vector<StudyPoint>*> axes;
  if (!study.sizes.empty()) axes.push_back(&study.sizes);
  for (const auto& axis : study.grid) axes.push_back(&axis);
  if (!study.variants.empty()) axes.push_back(&study.variants);
  const Planner planner(study, tokenizer);
  std::vector<PlannedRun> runs;
  std::set<std::string> names;
  const auto add = [&](const Points& points, double budget, uint64_t seed) {
    try {
      const RunConfig config = planner.config(points, budget, seed);
      check_unused(config);
      PlannedRun run = plan_run(config, tokenizer);
      name_points(run, study, points);
      if (names.insert(run.name).second) runs.push_back(std::move(run));
    } catch (const Error& error) {
      fail("study {}: {}: {}", study.name, names_of(points), error.what());
    }
  };
  for (const uint64_t seed : study.seeds)
    for (const double budget : study.budgets)
      for (const Points& points : combinations(axes)) add(points, budget, seed);
  return runs;
}

double predicted_seconds(const PlannedRun& run, double peak_gflop_s) {
  // Measured with nothing else running: 60% of the peak at width 64, 75% at 384, 79% at 768.
  const double D = double(run.config.model.hidden_size), share = 0.8 * D / (D + 22);
  return run.budget.flops / (peak_gflop_s * 1e9 * share);
}

}  // namespace isobath
