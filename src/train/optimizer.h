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
  // `trained`: which weights of the list, as train_only.h says; empty: all.
  Optimizer(const ModelConfig& config, const OptimizerOptions& options, std::vector<uint8_t> trained = {});

  // One step; step counts from 1. The weights that are not trained, and their moments, keep their bits; their gradients
  // are in no norm. Gradients are zero afterwards. Throws Error{kWork} naming the first weight whose
  // gradient is not finite; nothing is changed then.
  GradientNorms step(WeightSet& weights, WeightSet& gradient, double learning_rate, int64_t step);

  WeightSet first, second;  // AdamW's moments m and v

 private:
  OptimizerOptions options_;
  std::vector<uint8_t> trained_;
  std::vector<double> partial_;
};

}  // namespace isobath
