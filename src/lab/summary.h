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
  const nlohmann::json* first = nullptr;
  std::vector<const nlohmann::json*> runs;
  SeedSpread top_k, causal;  // nats per token; causal: of none where there is no causal rule
};

// In the order in which their recipes come first. They point into `records`.
std::vector<RecipeSummary> summarize(const std::vector<nlohmann::json>& records);

// A row per recipe: what the terminal prints, too.
HtmlTable summary_table(const std::vector<RecipeSummary>& recipes);

}  // namespace isobath
