// What a run's budget buys.
#pragma once

#include "model/flops.h"
#include "text/loader.h"
#include "train/options.h"
#include "train/schedule.h"

namespace isobath {

// Of a run of so many steps.
CapacityAnneal anneal_of(const TrainOptions& options, int64_t steps);

// Steps, last sequences and FLOPs of a resolved run; capacity that is annealed makes early steps cost more. `loader`
// holds the training text: with document scopes a budget of FLOPs is walked; else it may be null. Throws Error for a
// budget of less than one sequence, and for a budget of FLOPs with document scopes whose capacity is annealed.
Budget budget_of(const RunConfig& config, Loader* loader);

}  // namespace isobath
