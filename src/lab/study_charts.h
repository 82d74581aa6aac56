// The figures of a study, drawn from its records: each with the question it answers, and its numbers.
#pragma once

#include "lab/figure_parts.h"

namespace isobath {

// Those that the records can fill. Error bars run from the lowest to the highest seed.
std::vector<Figure> study_figures(const Recipes& recipes);

}  // namespace isobath
