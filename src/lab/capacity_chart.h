// Routed models by the share of tokens that their routed blocks take.
#pragma once

#include "lab/figure_parts.h"

namespace isobath {

// Without rows where all routed models are alike in capacity, frequency and router: there is nothing to compare.
Figure loss_against_capacity(const Recipes& all);

}  // namespace isobath
