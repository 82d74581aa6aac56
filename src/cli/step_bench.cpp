#include "cli/step_bench.h"

#include <sys/resource.h>

#include <chrono>

#include "base/parallel.h"
#include "base/rng.h"
#include "model/flops.h"

namespace isobath::cli {
namespace {

// Of all threads together.
double cpu_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](const timeval& time) { return 1e3 * double(time.tv_sec) + 1e-3 * double(time.tv_usec); };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

}  // namespace

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
                         .backward = true,
                         .packing = memory.packing}),
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
  step();
}

StepTime StepBench::step() {
  const int64_t N = sequences_ * T_;
  const CI32 begin = view_of(begin_);
  const Batch batch{.token = view_of(token_),
                    .target = view_of(target_),
                    .position = view_of(position_),
                    .capacity_begin = begin,
                    .segment_begin = begin,
                    .sequence = view_of(sequence_),
                    .sequence_id = view_of(id_, sequences_)};
  // Between steps others may take and give back memory; what the first step finds is what planning left.
  if (step_ > 0) before_ = isobath::anonymous_bytes();
  using Clock = std::chrono::steady_clock;
  const double cpu_before = cpu_ms();
  const Clock::time_point start = Clock::now();
  forward_backward(weights_.weights(), gradient_.weights(), products_, acts_, config_, batch, {.step = step_},
                   {.targets = N, .rows = N});
  const Clock::time_point rows_done = Clock::now();
  optimizer_.step(weights_, gradient_, 1e-4, ++step_);
  products_.pack(weights_.weights());
  const Clock::time_point end = Clock::now();
  const double cpu = cpu_ms() - cpu_before;
  if (before_) grown_ = grown_.value_or(0) + *isobath::anonymous_bytes() - *before_;
  const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
  return {.ms = ms(end - start),
          .parameter_ms = ms(end - rows_done),
          .core_share = cpu / (ms(end - start) * thread_count())};
}

int64_t StepBench::model_flops() const { return isobath::model_flops(config_, sequences_, T_).training(); }
int64_t StepBench::utilisation_flops() const { return isobath::utilisation_flops(config_, sequences_, T_); }

int64_t StepBench::planned_bytes() const {
  return 2 * weights_.bytes() + optimizer_.first.bytes() + optimizer_.second.bytes() + products_.bytes() +
         acts_.plan().bytes();
}

}  // namespace isobath::cli
