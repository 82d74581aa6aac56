// Steps of a dense model and of its Mixture-of-Depths twin, in turns, each pair beside the machine's peak measured just
// before it: whatever else runs on the machine slows all of them. A turn is two steps, the second of which is timed.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "cli/step_bench.h"

namespace isobath::cli {

struct BenchSetup {
  ModelConfig model;  // resolved
  int64_t batch = 4, context = 1024;
  bool dense = true, mod = true;  // which of the two models
  MemoryOptions memory = {};
  bool beside_plain = false;  // in each turn also a step with the default MemoryOptions
  int64_t rows() const { return batch * context; }
};

// An entry per pair.
struct ModelTimes {
  std::vector<double> step_ms, parameter_ms, core_share, peak_share;
  std::vector<double> over_plain, cpu_over_plain;  // time, and time of all cores, over those of the plain step
  int64_t model_flops = 0, utilisation_flops = 0, planned_bytes = 0;
  std::optional<int64_t> anonymous_bytes;
};

struct PairTimes {
  BenchSetup setup;
  MachinePeak peak{};  // medians
  std::optional<ModelTimes> dense, mod;
  bool both() const { return dense && mod; }
  // MoD over dense. The first two of each pair; `rows` is without the work per parameter.
  std::vector<double> time_ratio() const, rows_time_ratio() const;
  // Of the work that shares of peak count, attention's causal half; budgets count the whole of it.
  double flop_ratio() const { return double(mod->utilisation_flops) / double(dense->utilisation_flops); }
  double budget_flop_ratio() const { return double(mod->model_flops) / double(dense->model_flops); }
};

class PairBench {
 public:
  explicit PairBench(const BenchSetup& setup);  // takes a first step of each
  void pair();
  const PairTimes& times() const { return times_; }
  StepBench* dense() { return dense_ ? &*dense_ : nullptr; }
  StepBench* mod() { return mod_ ? &*mod_ : nullptr; }

 private:
  PairTimes times_;
  std::vector<double> fma_gflop_s_, read_gb_s_;
  std::optional<StepBench> dense_, mod_, plain_dense_, plain_mod_;
};

// What a step should reach (shares of peak, and time in proportion to FLOPs). Only those that can be judged at this
// size.
struct Goal {
  std::string name, text;
  double value, limit;
  bool holds;
};
std::vector<Goal> goals_of(const PairTimes& times);
// A line and an entry for each.
void add_goals(std::string& text, nlohmann::json& json, const std::vector<Goal>& goals);
// Of --check, from these entries: 0 if all hold, else 1. Throws Error if there are none.
int check_code(const nlohmann::json& report);
// Of time MoD / dense over the FLOP ratio, at 4,096 rows a step and more.
inline double most_over_flops(int64_t context) { return context >= 1024 ? 1.03 : 1.05; }

double median(const std::vector<double>& values);
// "median (least to most)", with so many digits.
std::string spread(const std::vector<double>& values, int digits, double unit = 1);

std::string text_of(const PairTimes& times);
nlohmann::json to_json(const MachinePeak& peak);
nlohmann::json to_json(const PairTimes& times);  // config, models, ratios

}  // namespace isobath::cli
