// Learning rate over a run of known length: linear warm-up, then cosine to a share of the peak.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace isobath {

struct Schedule {
  double peak;
  int64_t steps;
  double warmup = 0.02;     // share of the steps
  double final_rate = 0.1;  // share of the peak

  // Of step 1 to steps.
  double at(int64_t step) const {
    const double warm = std::max(1.0, std::round(warmup * double(steps)));
    if (double(step) < warm) return peak * double(step) / warm;
    const double rest = std::max(1.0, double(steps) - warm);
    const double done = std::min(1.0, (double(step) - warm) / rest);
    return peak * (final_rate + (1 - final_rate) * 0.5 * (1 + std::cos(std::numbers::pi * done)));
  }
};

// Capacity over a run (train.capacity_anneal): how far it has gone from 1 to what [routing] says. Step 1 has capacity
// 1, so that a model that was made from a dense one takes its first step as that model.
struct CapacityAnneal {
  double steps = 0;  // 0: there from the start
  bool cosine = false;

  // Of step 1 and later ones.
  double at(int64_t step) const {
    if (steps == 0) return 1;
    const double way = std::min(1.0, double(step - 1) / steps);
    return cosine && way < 1 ? (1 - std::cos(std::numbers::pi * way)) / 2 : way;
  }
};

}  // namespace isobath
