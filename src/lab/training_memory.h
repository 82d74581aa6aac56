// What the training of a record's run holds in memory by plan, known from its options alone.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "lab/figure_parts.h"
#include "model/plan_table.h"

namespace isobath {

// As `isobath plan` counts it, for the threads that the run had. What a record does not tell is at its default:
// `recompute` and `pack`. The vocabulary follows from the number of parameters. None where the options and that number
// do not agree, as another version's may not.
std::optional<PlanTable> training_plan(const nlohmann::json& record);

// A row per model: activations, and all of it. Runs that take the same (other learning rates, budgets) share one.
Figure training_memory(const Recipes& all);

}  // namespace isobath
