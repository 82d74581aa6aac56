#include "cli/pair_bench.h"

#include "lab/statistics.h"

namespace isobath::cli {
namespace {

constexpr double kPeakSeconds = 0.2;

// Of two steps the second: a step after one of another model is a few percent slower than one after its own, which is
// how models train.
StepTime timed_step(StepBench& bench) {
  bench.step();
  return bench.step();
}

void add_step(ModelTimes& times, StepBench& bench, std::optional<StepBench>& plain, double peak_gflop_s) {
  const StepTime step = timed_step(bench);
  if (plain) {
    const StepTime other = timed_step(*plain);
    times.over_plain.push_back(step.ms / other.ms);
    times.cpu_over_plain.push_back(step.ms * step.core_share / (other.ms * other.core_share));
  }
  times.step_ms.push_back(step.ms);
  times.parameter_ms.push_back(step.parameter_ms);
  times.core_share.push_back(step.core_share);
  times.peak_share.push_back(double(times.utilisation_flops) / (step.ms * 1e6) / peak_gflop_s);
  times.anonymous_bytes = bench.anonymous_bytes();
}

ModelTimes times_of(const StepBench& bench) {
  return {.step_ms = {},
          .parameter_ms = {},
          .core_share = {},
          .peak_share = {},
          .over_plain = {},
          .cpu_over_plain = {},
          .model_flops = bench.model_flops(),
          .utilisation_flops = bench.utilisation_flops(),
          .planned_bytes = bench.planned_bytes(),
          .anonymous_bytes = bench.anonymous_bytes()};
}

}  // namespace

double median(const std::vector<double>& values) { return quantile(values, 0.5); }

std::vector<double> PairTimes::time_ratio() const {
  std::vector<double> ratio;
  for (size_t i = 0; i < dense->step_ms.size(); i++) ratio.push_back(mod->step_ms[i] / dense->step_ms[i]);
  return ratio;
}

std::vector<double> PairTimes::rows_time_ratio() const {
  std::vector<double> ratio;
  for (size_t i = 0; i < dense->step_ms.size(); i++)
    ratio.push_back((mod->step_ms[i] - mod->parameter_ms[i]) / (dense->step_ms[i] - dense->parameter_ms[i]));
  return ratio;
}

PairBench::PairBench(const BenchSetup& setup) {
  times_.setup = setup;
  if (setup.dense) {
    dense_.emplace(dense_twin(setup.model), setup.batch, setup.context, setup.memory);
    times_.dense = times_of(*dense_);
    if (setup.beside_plain) plain_dense_.emplace(dense_twin(setup.model), setup.batch, setup.context);
  }
  if (setup.mod) {
    mod_.emplace(setup.model, setup.batch, setup.context, setup.memory);
    times_.mod = times_of(*mod_);
    if (setup.beside_plain) plain_mod_.emplace(setup.model, setup.batch, setup.context);
  }
}

void PairBench::pair() {
  const MachinePeak peak = measure_machine_peak(kPeakSeconds);
  if (dense_) add_step(*times_.dense, *dense_, plain_dense_, peak.fma_gflop_s);
  if (mod_) add_step(*times_.mod, *mod_, plain_mod_, peak.fma_gflop_s);
  fma_gflop_s_.push_back(peak.fma_gflop_s);
  read_gb_s_.push_back(peak.read_gb_s);
  times_.peak = peak;
  times_.peak.fma_gflop_s = median(fma_gflop_s_);
  times_.peak.read_gb_s = median(read_gb_s_);
}

// Under some width and number of rows a step is short of arithmetic whatever is done about it, and what costs by the
// parameter is the same for both models: no goals there.
std::vector<Goal> goals_of(const PairTimes& t) {
  constexpr int64_t kLeastRowsForShare = 2048, kLeastRowsForRatio = 4096, kLeastWidth = 384, kWide = 768;
  std::vector<Goal> goals;
  const int64_t rows = t.setup.rows(), width = t.setup.model.hidden_size;
  if (t.dense && rows >= kLeastRowsForShare && width >= kLeastWidth) {
    const double value = median(t.dense->peak_share), limit = width >= kWide ? 0.70 : 0.65;
    goals.push_back({"dense_peak_share",
                     fmt::format("a dense step at {:.0f}% of peak or more: {:.1f}%", 100 * limit, 100 * value), value,
                     limit, value >= limit});
  }
  if (t.both() && rows >= kLeastRowsForRatio) {
    const double value = median(t.time_ratio()) / t.flop_ratio(), limit = most_over_flops(t.setup.context);
    goals.push_back({"time_over_flops",
                     fmt::format("MoD / dense time at most {:.2f} times the FLOP ratio: {:.3f} times", limit, value),
                     value, limit, value <= limit});
  }
  return goals;
}

}  // namespace isobath::cli
