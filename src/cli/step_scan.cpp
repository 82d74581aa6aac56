#include "cli/step_scan.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/units.h"
#include "cli/terminal.h"
#include "model/flops.h"

namespace isobath::cli {
namespace {

using Point = ScanResult::Point;
using Axis = ScanResult::Axis;

// The model with its derived sizes filled in anew, so that changes of width or heads go through.
BenchSetup changed(BenchSetup setup, const std::function<void(BenchSetup&)>& change) {
  ModelConfig& m = setup.model;
  m.intermediate_size = m.num_key_value_heads = m.max_position_embeddings = m.routing.predictor_width = 0;
  change(setup);
  resolve(m, setup.context);
  return setup;
}

// n times each factor, rounded, at least `least`, each once.
std::vector<int64_t> multiples(int64_t n, const std::vector<double>& factors, int64_t least) {
  std::vector<int64_t> all;
  for (const double factor : factors) all.push_back(std::max(least, int64_t(double(n) * factor + 0.5)));
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

Axis context_axis(const BenchSetup& base) {
  const int64_t T = base.context, tokens = std::max(base.rows(), 8 * T);
  Axis axis{"context", fmt::format("Tokens per sequence, at {} tokens a step.", tokens), {}};
  for (const int64_t length : multiples(T, {0.25, 0.5, 1, 2, 4, 8}, 1)) {
    const int64_t batch = std::max<int64_t>(1, tokens / length);
    axis.points.push_back({std::to_string(length), fmt::format("batch {}", batch), changed(base, [&](auto& s) {
                             s.context = length;
                             s.batch = batch;
                           })});
  }
  return axis;
}

Axis width_axis(const BenchSetup& base) {
  const int64_t K = base.model.head_dim;
  Axis axis{"width", fmt::format("Heads of {}.", K), {}};
  for (const int64_t heads : multiples(base.model.num_attention_heads, {1 / 3.0, 2 / 3.0, 1, 4 / 3.0, 2}, 1))
    axis.points.push_back({std::to_string(heads * K), fmt::format("heads {}", heads), changed(base, [&](auto& s) {
                             s.model.hidden_size = heads * K;
                             s.model.num_attention_heads = heads;
                           })});
  return axis;
}

// Block 1 is the first that is routed.
Axis depth_axis(const BenchSetup& base) {
  Axis axis{"depth", "Blocks.", {}};
  for (const int64_t L : multiples(base.model.num_hidden_layers, {1 / 3.0, 2 / 3.0, 1, 4 / 3.0, 2}, 2))
    axis.points.push_back({std::to_string(L), "", changed(base, [&](auto& s) { s.model.num_hidden_layers = L; })});
  return axis;
}

Axis batch_axis(const BenchSetup& base) {
  Axis axis{"batch", fmt::format("Sequences of {} tokens a step.", base.context), {}};
  for (const int64_t batch : multiples(base.batch, {0.25, 0.5, 1, 2}, 1))
    axis.points.push_back({std::to_string(batch), fmt::format("rows {}", batch * base.context),
                           changed(base, [&](auto& s) { s.batch = batch; })});
  return axis;
}

Axis capacity_axis(const BenchSetup& base) {
  Axis axis{"capacity", "Share of the tokens that a routed block takes.", {}};
  for (const double capacity : {0.0625, 0.125, 0.25, 0.5, 1.0})
    axis.points.push_back({fmt::format("{:g}%", 100 * capacity), "",
                           changed(base, [&](auto& s) { s.model.routing.capacity = {capacity}; })});
  return axis;
}

double flops_of(const BenchSetup& s) {
  return double(utilisation_flops(s.model, s.batch, s.context) +
                utilisation_flops(dense_twin(s.model), s.batch, s.context));
}

// Measures and minds the clock.
class Scanner {
 public:
  Scanner(ScanResult& result, double seconds) : result_(result), seconds_(seconds) {}

  void run(int64_t most_pairs) {
    calibrate();
    std::vector<Point*> points;
    for (Axis& axis : result_.axes)
      for (Point& point : axis.points) points.push_back(&point);
    std::vector<Point*> expensive = take_expensive(points);
    int64_t pairs = most_pairs;
    while (pairs > 1 && spent() + cost(points, pairs) > seconds_) pairs--;
    const double all = cost(points, pairs);
    double done = 0;
    for (Point* point : points) {
      done += cost({point}, pairs) / all;
      measure(*point, pairs);
      progress_.update(int64_t(100 * done + 0.5), 100, "");
    }
    for (Point* point : expensive) measure(*point, 1);  // where there is time for it after all
  }

 private:
  double spent() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  // The speed of this machine, by a pair of the model that the others lie around.
  void calibrate() {
    PairBench bench(result_.base);
    timed_pair(bench, flops_of(result_.base));
    result_.peak = bench.times().peak;
  }
  void timed_pair(PairBench& bench, double flops) {
    const double before = spent();
    bench.pair();
    pair_seconds_ += spent() - before;
    pair_flops_ += flops;
  }
  // Seconds of planning and a first step of both models, and of the pairs.
  double cost(const std::vector<Point*>& points, int64_t pairs) const {
    constexpr double kPlanning = 0.3;
    double sum = 0;
    for (const Point* point : points)
      sum += kPlanning + double(1 + pairs) * flops_of(point->setup) * pair_seconds_ / pair_flops_;
    return sum;
  }

  // Takes out the most expensive points until one pair of each of the others fits; returns them, the cheapest first.
  std::vector<Point*> take_expensive(std::vector<Point*>& points) const {
    std::vector<Point*> taken;
    while (points.size() > 1 && spent() + cost(points, 1) > seconds_) {
      const auto most = std::max_element(points.begin(), points.end(), [](const Point* a, const Point* b) {
        return flops_of(a->setup) < flops_of(b->setup);
      });
      taken.insert(taken.begin(), *most);
      points.erase(most);
    }
    return taken;
  }

  void measure(Point& point, int64_t pairs) {
    if (spent() + cost({&point}, 1) > seconds_) return;
    PairBench bench(point.setup);
    for (int64_t pair = 0; pair < pairs && (pair == 0 || spent() < seconds_); pair++)
      timed_pair(bench, flops_of(point.setup));
    point.times = bench.times();
  }

  using Clock = std::chrono::steady_clock;
  ScanResult& result_;
  const double seconds_;
  const Clock::time_point start_ = Clock::now();
  double pair_seconds_ = 0, pair_flops_ = 0;  // of all pairs so far
  Progress progress_{"scan"};
};

}  // namespace

std::vector<Axis> scan_axes(const BenchSetup& base) {
  require(base.model.routing.blocks.empty(), "a scan changes the number of blocks; give --every instead of --blocks");
  return {context_axis(base), width_axis(base), depth_axis(base), batch_axis(base), capacity_axis(base)};
}

ScanResult scan_steps(const BenchSetup& base, int64_t most_pairs, double seconds) {
  ScanResult result{.base = base, .axes = scan_axes(base)};
  Scanner(result, seconds).run(most_pairs);
  return result;
}

StepScan page_of(const ScanResult& r) {
  const ModelConfig& m = r.base.model;
  StepScan scan{.subtitle = fmt::format("{}, {} threads, {}: {:.0f} GFLOP/s fp32. Around width {}, {} blocks, {} x {} "
                                        "tokens; medians, and the least and most of a few pairs of steps.",
                                        r.peak.cpu, r.peak.threads, r.peak.simd, r.peak.fma_gflop_s, m.hidden_size,
                                        m.num_hidden_layers, r.base.batch, r.base.context),
                .axes = {}};
  for (const Axis& axis : r.axes) {
    ScanAxis& out = scan.axes.emplace_back(ScanAxis{axis.name, axis.note, {}});
    std::string left_out;
    for (const Point& p : axis.points) {
      if (!p.measured()) {
        left_out += " " + p.value;
        continue;
      }
      out.points.push_back({.value = p.value,
                            .detail = p.detail,
                            .dense_ms = spread_of(p.times.dense->step_ms),
                            .mod_ms = spread_of(p.times.mod->step_ms),
                            .dense_share = spread_of(p.times.dense->peak_share),
                            .mod_share = spread_of(p.times.mod->peak_share),
                            .time_ratio = spread_of(p.times.time_ratio()),
                            .flop_ratio = p.times.flop_ratio(),
                            .limit = most_over_flops(p.setup.context)});
    }
    if (!left_out.empty()) out.note += " Left out for want of time:" + left_out + ".";
  }
  return scan;
}

nlohmann::json to_json(const ScanResult& r) {
  nlohmann::json axes = nlohmann::json::array();
  for (const Axis& axis : r.axes) {
    nlohmann::json points = nlohmann::json::array(), left_out = nlohmann::json::array();
    for (const Point& p : axis.points) {
      if (!p.measured()) {
        left_out.push_back(p.value);
        continue;
      }
      nlohmann::json point = to_json(p.times);
      point["value"] = p.value;
      point["detail"] = p.detail;
      point["capacity"] = p.setup.model.routing.capacity[0];
      points.push_back(point);
    }
    axes.push_back({{"axis", axis.name}, {"note", axis.note}, {"points", points}, {"left_out", left_out}});
  }
  return {{"machine", to_json(r.peak)}, {"scan", axes}};
}

}  // namespace isobath::cli
