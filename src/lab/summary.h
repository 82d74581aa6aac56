// Records of a study, put together: what runs that differ by their seed alone say as one.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/html.h"

namespace isobath {

struct SeedSpread {
  int64_t count = 0;
  double mean = 0, deviation = 0;  // of the sample; 0 of one value
  double low = 0, high = 0;
};
SeedSpread seed_spread(const std::vector<double>& values);
std::string spread_text(const SeedSpread& spread, int digits);  // "1.2345 +- 0.0012"

struct RecipeSummary {
  std::string recipe, label;  // "joint, width 64"
  std::string text;           // "text 3623" by its hash, where the records are of several texts; else empty
  const nlohmann::json* first = nullptr;
  std::vector<const nlohmann::json*> runs;
  SeedSpread top_k, causal;  // nats per token; causal: of none where there is no causal rule
};

// In the order in which their recipes come first; the same recipe on another text is another model. They point into
// `records`.
std::vector<RecipeSummary> summarize(const std::vector<nlohmann::json>& records);

// Where studies have a [grid] (of learning rates, say): of each text, variant, size and budget the recipe of the lowest
// mean loss over the seeds that recipes share, with all its seeds. Models of no grid as they are. A figure of one point
// per model is of these.
std::vector<RecipeSummary> best_of_grid(const std::vector<RecipeSummary>& recipes);

// Steps times the median step.
double training_seconds(const nlohmann::json& record);

// A row per recipe: what the terminal prints, too.
HtmlTable summary_table(const std::vector<RecipeSummary>& recipes);

}  // namespace isobath
