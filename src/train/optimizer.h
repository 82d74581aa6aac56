// AdamW over the list of weights, with clipping. The predictor is a model of its own: own norm, own clipping.
#pragma once

#include <cstdint>
#include <vector>

#include "model/weights.h"

namespace isobath {

struct OptimizerOptions {
  double beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1.0;
};

struct GradientNorms {
  double model = 0, predictor = 0;  // before clipping
};

class Optimizer {
 public:
  Optimizer(const ModelConfig& config, const OptimizerOptions& options);

  // One step; step counts from 1. Gradients are zero afterwards. Throws Error{kWork} naming the first weight whose
  // gradient is not finite; nothing is changed then.
  GradientNorms step(WeightSet& weights, WeightSet& gradient, double learning_rate, int64_t step);

  WeightSet first, second;  // AdamW's moments m and v

 private:
  OptimizerOptions options_;
  std::vector<double> partial_;
};

}  // namespace isobath
