// The figures of a study, drawn from its records: each with the question it answers, and its numbers.
#pragma once

#include <string>
#include <vector>

#include "lab/charts.h"
#include "lab/summary.h"

namespace isobath {

struct Figure {
  std::string name;  // of its files
  std::string title, note;
  Chart chart;
};

// Those that the records can fill. Error bars run from the lowest to the highest seed.
std::vector<Figure> study_figures(const std::vector<RecipeSummary>& recipes);

}  // namespace isobath
