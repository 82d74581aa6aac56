// Whole training steps on random tokens, timed: forward, backward, clipping, AdamW, packing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/memory.h"
#include "model/network.h"
#include "train/optimizer.h"

namespace isobath::cli {

struct StepTime {
  double ms = 0;
  double parameter_ms = 0;  // of them on what costs by the parameter, not by the row: gradient norm, AdamW, packing
  double core_share = 0;    // of the time of all threads that they ran: the rest they slept, or others had the cores
};

class StepBench {
 public:
  // Plans, allocates and takes a first step: touching memory for the first time is not a step's cost.
  StepBench(const ModelConfig& config, int64_t sequences, int64_t T, const MemoryOptions& memory = {});
  StepTime step();

  int64_t model_flops() const;        // of a step: budgets' convention
  int64_t utilisation_flops() const;  // of a step: the convention of shares of peak
  int64_t planned_bytes() const;
  // How much more anonymous memory the process holds for what this object did, planning included.
  std::optional<int64_t> anonymous_bytes() const { return grown_; }

 private:
  std::optional<int64_t> before_ = isobath::anonymous_bytes(), grown_;
  ModelConfig config_;
  int64_t sequences_, T_, step_ = 0;
  Activations acts_;
  WeightSet weights_, gradient_;
  Products products_;
  Optimizer optimizer_;
  std::vector<int32_t> token_, target_, position_, sequence_, begin_;
  std::vector<int64_t> id_;
};

}  // namespace isobath::cli
