// Whole training steps on random tokens, timed: forward, backward, clipping, AdamW, packing.
#pragma once

#include <memory>
#include <vector>

#include "model/flops.h"
#include "model/network.h"
#include "train/optimizer.h"

namespace isobath {

class StepBench {
 public:
  StepBench(const ModelConfig& config, int64_t sequences, int64_t T, const MemoryOptions& memory = {});
  double step_ms();  // runs one step

  const ModelConfig& config() const { return config_; }
  double model_flops() const;        // of a step: budgets' convention
  double utilisation_flops() const;  // of a step: the convention of shares of peak
  int64_t planned_bytes() const;

 private:
  ModelConfig config_;
  int64_t sequences_, T_, step_ = 0;
  Activations acts_;
  WeightSet weights_, gradient_;
  Products products_;
  Optimizer optimizer_;
  std::vector<int32_t> token_, target_, position_, sequence_, begin_;
  std::vector<int64_t> id_;
};

}  // namespace isobath
