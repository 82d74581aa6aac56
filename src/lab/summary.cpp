#include "lab/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "base/units.h"
#include "lab/record.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

std::string corpus_of(const Json& record) { return record.value("corpus", ""); }

std::string label_of(const Json& record) {
  std::string text = record.value("variant", "");
  const auto add = [&](const std::string& more) { text += (text.empty() || more.empty() ? "" : ", ") + more; };
  add(record.value("size", ""));
  const Json grid = telling_values(record.value("grid", Json::object()), record.value("changed", Json::object()));
  for (const auto& [key, value] : grid.items())
    add(fmt::format("{} = {}", key.substr(key.find('.') + 1),
                    value.is_string() ? value.get<std::string>() : value.dump()));
  return text.empty() ? record.value("run", "") : text;
}

// The smallest and the largest share of a routed section over all runs, "11.2 to 14.0%".
std::string shares_text(const RecipeSummary& recipe) {
  double low = 1, high = 0;
  for (const Json* run : recipe.runs) {
    const Json& evaluation = run->contains("causal") ? (*run)["causal"] : (*run)["top_k"];
    for (const Json& layer : evaluation["layers"]) {
      low = std::min(low, layer["share"].get<double>());
      high = std::max(high, layer["share"].get<double>());
    }
  }
  return high < low ? "-" : fmt::format("{:.1f} to {:.1f}%", 100 * low, 100 * high);
}

// How often the causal rule chooses as top-k does, over routed sections and runs.
std::string agreement_text(const RecipeSummary& recipe) {
  std::vector<double> agreement;
  for (const Json* run : recipe.runs)
    if (const auto one = causal_agreement((*run)["top_k"])) agreement.push_back(*one);
  return agreement.empty() ? "-" : fmt::format("{:.1f}%", 100 * seed_spread(agreement).mean);
}

// Loss by top-k less that of the first model of the same budget, size and text, seed by seed: what seeds share drops
// out.
std::string against_first_text(const std::vector<RecipeSummary>& recipes, const RecipeSummary& recipe) {
  const auto alike = [&](const RecipeSummary& other) {
    return (*other.first)["budget"] == (*recipe.first)["budget"] && (*other.first)["size"] == (*recipe.first)["size"] &&
           corpus_of(*other.first) == corpus_of(*recipe.first);
  };
  const RecipeSummary& first = *std::find_if(recipes.begin(), recipes.end(), alike);
  std::vector<double> differences;
  for (const Json* run : recipe.runs)
    for (const Json* other : first.runs)
      if ((*run)["seed"] == (*other)["seed"])
        differences.push_back((*run)["top_k"]["loss"].get<double>() - (*other)["top_k"]["loss"].get<double>());
  return &first == &recipe || differences.empty() ? "-" : spread_text(seed_spread(differences), 4);
}

// Mean over seeds. By the median step: a run that was paused or shared its machine for a while stood still in some.
std::string time_text(const RecipeSummary& recipe) {
  double sum = 0;
  for (const Json* run : recipe.runs) sum += training_seconds(*run);
  return duration_text(sum / double(recipe.runs.size()));
}

}  // namespace

double training_seconds(const Json& record) {
  return record["measured"]["step_ms"].get<double>() / 1e3 * record["steps"].get<double>();
}

SeedSpread seed_spread(const std::vector<double>& values) {
  SeedSpread s{.count = int64_t(values.size())};
  if (values.empty()) return s;
  for (const double v : values) s.mean += v / double(values.size());
  for (const double v : values) s.deviation += (v - s.mean) * (v - s.mean);
  s.deviation = values.size() > 1 ? std::sqrt(s.deviation / double(values.size() - 1)) : 0;
  s.low = *std::min_element(values.begin(), values.end());
  s.high = *std::max_element(values.begin(), values.end());
  return s;
}

std::string spread_text(const SeedSpread& s, int digits) {
  if (s.count == 0) return "-";
  if (s.count == 1) return fmt::format("{:.{}f}", s.mean, digits);
  return fmt::format("{:.{}f} +- {:.{}f}", s.mean, digits, s.deviation, digits);
}

std::vector<RecipeSummary> summarize(const std::vector<Json>& records) {
  std::set<std::string> texts;
  for (const Json& record : records)
    if (const std::string text = corpus_of(record); !text.empty()) texts.insert(text);
  std::vector<RecipeSummary> recipes;
  for (const Json& record : records) {
    const std::string recipe = record["recipe"];
    auto at = std::find_if(recipes.begin(), recipes.end(), [&](const RecipeSummary& r) {
      return r.recipe == recipe && corpus_of(*r.first) == corpus_of(record);
    });
    if (at == recipes.end()) {
      const std::string corpus = corpus_of(record);
      const std::string text = texts.size() > 1 && !corpus.empty() ? "text " + corpus.substr(0, 4) : "";
      recipes.push_back({.recipe = recipe,
                         .label = label_of(record) + (text.empty() ? "" : ", " + text),
                         .text = text,
                         .first = &record,
                         .runs{},
                         .top_k{},
                         .causal{}});
      at = recipes.end() - 1;
    }
    at->runs.push_back(&record);
  }
  for (RecipeSummary& recipe : recipes) {
    std::vector<double> top_k, causal;
    for (const Json* run : recipe.runs) {
      top_k.push_back((*run)["top_k"]["loss"]);
      if (run->contains("causal")) causal.push_back((*run)["causal"]["loss"]);
    }
    recipe.top_k = seed_spread(top_k);
    recipe.causal = seed_spread(causal);
  }
  return recipes;
}

namespace {

// By the seeds that both have: later seeds are often those of the value that did best with the first one alone.
bool did_better(const RecipeSummary& a, const RecipeSummary& b) {
  double sum = 0;
  bool share_seeds = false;
  for (const Json* x : a.runs)
    for (const Json* y : b.runs) {
      if ((*x)["seed"] != (*y)["seed"]) continue;
      sum += (*x)["top_k"]["loss"].get<double>() - (*y)["top_k"]["loss"].get<double>();
      share_seeds = true;
    }
  return share_seeds ? sum < 0 : a.top_k.mean < b.top_k.mean;
}

}  // namespace

std::vector<RecipeSummary> best_of_grid(const std::vector<RecipeSummary>& recipes) {
  // A size by its name, where it has one: values of the grid may differ by some weights (routing.every).
  const auto key_of = [](const RecipeSummary& r) {
    const std::string size = r.first->value("size", "");
    return std::tuple(corpus_of(*r.first), r.first->value("variant", ""),
                      size.empty() ? (*r.first)["parameters"].dump() : size, (*r.first)["budget"].get<double>());
  };
  struct Best {
    const RecipeSummary* recipe = nullptr;
    bool of_grid = false;
  };
  std::map<decltype(key_of(recipes[0])), Best> best;
  for (const RecipeSummary& r : recipes) {
    Best& b = best[key_of(r)];
    b.of_grid = b.of_grid || !r.first->value("grid", Json::object()).empty();
    if (b.recipe == nullptr || did_better(r, *b.recipe)) b.recipe = &r;
  }
  std::vector<RecipeSummary> kept;
  for (const RecipeSummary& r : recipes)
    if (const Best& b = best.at(key_of(r)); !b.of_grid || b.recipe == &r) kept.push_back(r);
  return kept;
}

HtmlTable summary_table(const std::vector<RecipeSummary>& recipes) {
  HtmlTable table;
  // What was found stands first: a page shows so many columns at once.
  table.head = {"model", "budget",   "loss (top-k)", "against first", "loss (causal)", "causal shares", "agreement",
                "seeds", "of dense", "parameters",   "FLOPs/token",   "tokens",        "time"};
  for (const RecipeSummary& recipe : recipes) {
    const Json& r = *recipe.first;
    const double flops = r["flops_per_token"], dense = r["dense_flops_per_token"];
    table.rows.push_back({recipe.label, fmt::format("{:.3g}", r["budget"].get<double>()), spread_text(recipe.top_k, 4),
                          against_first_text(recipes, recipe), spread_text(recipe.causal, 4), shares_text(recipe),
                          agreement_text(recipe), std::to_string(recipe.runs.size()),
                          fmt::format("{:.1f}%", 100 * flops / dense), with_letter(r["parameters"].get<double>()),
                          with_letter(flops), with_letter(r["tokens"].get<double>()), time_text(recipe)});
  }
  return table;
}

}  // namespace isobath
