// Where the time of a training step goes: by op, and what it loses to ops that are no product.
#pragma once

#include <string>
#include <vector>

#include "base/machine.h"
#include "base/work.h"
#include "cli/step_bench.h"
#include "lab/html.h"

namespace isobath::cli {

struct StepProfile {
  double step_ms = 0, core_share = 0;
  std::vector<Profile::Op> ops;  // the longest first
  double utilisation_flops = 0;

  double ms(bool product) const;  // of the ops that are products, or of those that are not
  double outside_ms() const { return step_ms - ms(true) - ms(false); }
};

// The quickest of `steps` steps: the one that others disturbed least.
StepProfile profile_step(StepBench& bench, int64_t steps);

// The ops, then what they come to.
std::string text_of(const StepProfile& profile, const MachinePeak& peak);
nlohmann::json to_json(const StepProfile& profile, const MachinePeak& peak);

}  // namespace isobath::cli
