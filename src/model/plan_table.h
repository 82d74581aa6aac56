// What a model costs before it is trained: parameters, both FLOP counts, activation and KV memory, per block and in
// all.
#pragma once

#include <cstdint>
#include <vector>

#include "model/activations.h"
#include "model/config.h"
#include "model/flops.h"

namespace isobath {

struct PlanRow {
  Section section = {};
  double capacity = 1;
  int64_t parameters = 0;
  double model_flops = 0;     // forward, per token; training is 3 times it
  double executed_flops = 0;  // forward and backward, per token, as the kernels will run them
  double training_flops() const { return 3 * model_flops; }
  int64_t activation_bytes = 0;  // of one micro-batch
  double kv_bytes = 0;           // per token, fp32, at the planned share
  bool operator==(const PlanRow&) const = default;
};

struct PlanTable {
  std::vector<PlanRow> section;  // by section
  PlanRow rest;  // embedding, last norm, head; of the activations what all blocks share: residual stream, scratch
  PlanRow total;
  int64_t weight_bytes = 0;      // weights, gradients and two moments, fp32
  int64_t packed_bytes = 0;      // copies for the products and their scratch
  int64_t evaluation_bytes = 0;  // buffers of an evaluation by batches of the same limits, beside those of training
  int64_t training_bytes() const { return weight_bytes + packed_bytes + total.activation_bytes; }
};

// For micro-batches of `limits` in training; FLOPs are those of whole sequences, bytes those of the objects that a run
// constructs. Allocates nothing of the model, but builds the products to know their bytes: for the present number of
// threads.
PlanTable plan_table(const ModelConfig& config, const BatchLimits& limits, const MemoryOptions& memory = {});

}  // namespace isobath
