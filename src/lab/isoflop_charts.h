// Models of one budget by size, their best size, and how it grows.
#pragma once

#include "lab/figure_parts.h"

namespace isobath {

// Models of one variant, text and budget, by size; those of one size alone make no line. They point into `all`.
std::vector<std::vector<const RecipeSummary*>> lines_of_sizes(const Recipes& all);

// All take of the values of a grid those that did best (best_of_grid): a curve over all of them is of none.
Figure loss_against_parameters(const Recipes& tried);
// A row per budget and variant whose best size lies among its models: the size, the loss of the parabola and the FLOPs
// per token there (between two sizes as a power of the parameters), and how they stand to those of the dense models.
HtmlTable best_sizes_table(const Recipes& tried);
// A row per variant whose best size is known at two budgets or more: exponent of the best size, with its interval.
HtmlTable scaling_table(const Recipes& tried);

}  // namespace isobath
