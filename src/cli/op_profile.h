// Where the time of a training step or of a pass goes: by op, and what it loses to ops that are no product.
#pragma once

#include <string>
#include <vector>

#include "base/machine.h"
#include "base/work.h"
#include "cli/step_bench.h"
#include "lab/html.h"

namespace isobath::cli {

struct OpProfile {
  double ms = 0;                 // of the whole, ops and what lies between them
  std::vector<Profile::Op> ops;  // the longest first

  OpProfile() = default;
  OpProfile(double ms, const Profile& profile);
  double ms_of(bool product) const;  // of the ops that are products, or of those that are not
  double outside_ms() const { return ms - ms_of(true) - ms_of(false); }
};

// A table; `whole` is what was profiled, as in "step".
std::string text_of(const OpProfile& profile, const MachinePeak& peak, std::string_view whole);
nlohmann::json to_json(const OpProfile& profile, const MachinePeak& peak);

struct StepProfile {
  OpProfile time;
  double core_share = 0, utilisation_flops = 0;
};

// The quickest of `steps` steps: the one that others disturbed least.
StepProfile profile_step(StepBench& bench, int64_t steps);

// The ops, then what they come to.
std::string text_of(const StepProfile& profile, const MachinePeak& peak);
nlohmann::json to_json(const StepProfile& profile, const MachinePeak& peak);

}  // namespace isobath::cli
