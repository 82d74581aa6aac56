#include "train/step_bench.h"

#include <chrono>

#include "base/rng.h"

namespace isobath {

StepBench::StepBench(const ModelConfig& config, int64_t sequences, int64_t T, const MemoryOptions& memory)
    : config_(config),
      sequences_(sequences),
      T_(T),
      acts_(config, {.sequences = sequences, .T = T, .max_documents = 1}, Purpose::kTrain, Allocate::kYes, memory),
      weights_(config),
      gradient_(config),
      products_(config, {.max_rows = sequences * T,
                         .exact = acts_.list_sizes(),
                         .head_rows = head_chunk(config, sequences * T),
                         .backward = true}),
      optimizer_(config, {}) {
  initialize(weights_, 1);
  products_.pack(weights_.weights());
  const Rng rng(1, Stream::kBench);
  for (int64_t n = 0; n < sequences * T; n++) {
    token_.push_back(int32_t(rng.below(config.vocab_size, uint64_t(n))));
    target_.push_back(int32_t(rng.below(config.vocab_size, uint64_t(n), 1)));
    position_.push_back(int32_t(n % T));
    sequence_.push_back(int32_t(n / T));
  }
  for (int64_t s = 0; s <= sequences; s++) {
    begin_.push_back(int32_t(s * T));
    id_.push_back(s);
  }
}

double StepBench::step_ms() {
  const int64_t N = sequences_ * T_;
  const CI32 begin{begin_.data(), {sequences_ + 1}};
  const Batch batch{.token = {token_.data(), {N}},
                    .target = {target_.data(), {N}},
                    .position = {position_.data(), {N}},
                    .capacity_begin = begin,
                    .segment_begin = begin,
                    .sequence = {sequence_.data(), {N}},
                    .sequence_id = {id_.data(), {sequences_}}};
  const auto start = std::chrono::steady_clock::now();
  forward_backward(weights_.weights(), gradient_.weights(), products_, acts_, config_, batch, {.step = step_},
                   {.targets = N, .rows = N});
  optimizer_.step(weights_, gradient_, 1e-4, ++step_);
  products_.pack(weights_.weights());
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double StepBench::model_flops() const { return double(isobath::model_flops(config_, sequences_, T_).training()); }
double StepBench::utilisation_flops() const { return double(isobath::utilisation_flops(config_, sequences_, T_)); }

int64_t StepBench::planned_bytes() const {
  return 2 * weights_.bytes() + optimizer_.first.bytes() + optimizer_.second.bytes() + products_.bytes() +
         acts_.plan().bytes();
}

}  // namespace isobath
