// Linear in its three directions: GFLOP/s, and the share of the machine's FMA peak measured at the start.
//   linear_bench --benchmark_filter=forward
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdio>

#include "base/machine.h"
#include "ops/linear.h"
#include "tensor/arena.h"

namespace isobath {
namespace {

enum Direction { kForward, kBackwardInput, kBackwardWeight };

void run_linear(benchmark::State& state, Direction direction, double peak_gflop_s) {
  const int64_t M = state.range(0), N = state.range(1), K = state.range(2);
  Linear linear;
  Plan plan;
  F32 W, dW, x, y;
  linear.plan(plan, "linear", {.N = N, .K = K, .max_rows = M, .exact = {&M, 1}});
  plan.add("W", W, {N, K});
  plan.add("dW", dW, {N, K});
  plan.add("x", x, {M, K});
  plan.add("y", y, {M, N});
  const Arena arena(plan);
  const auto fill = [](F32 v) {
    for (int64_t i = 0; i < v.numel(); i++) v[i] = float(i * 7 % 13) / 13 - 0.5f;
  };
  fill(W), fill(x), fill(y);
  linear.pack(W);
  for (auto _ : state) {
    if (direction == kForward) linear.forward(y, x);
    if (direction == kBackwardInput) linear.backward_input(x, y);
    if (direction == kBackwardWeight) linear.backward_weight(add_to(dW), y, x);
    benchmark::ClobberMemory();
  }
  const double gflop = 2e-9 * double(linear_multiply_adds(M, N, K)) * double(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(gflop, benchmark::Counter::kIsRate);
  state.counters["of_peak_%"] = benchmark::Counter(100 * gflop / peak_gflop_s, benchmark::Counter::kIsRate);
}

}  // namespace
}  // namespace isobath

int main(int argc, char** argv) {
  using namespace isobath;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const MachinePeak peak = measure_machine_peak();
  fmt::print(stderr, "{}, {} threads, {}: {:.0f} GFLOP/s fp32 FMA, {:.1f} GB/s read; {}\n", peak.cpu, peak.threads,
             peak.simd, peak.fma_gflop_s, peak.read_gb_s, linear_library());
  for (const auto& [name, direction] : {std::pair<const char*, Direction>{"forward", kForward},
                                        {"backward_input", kBackwardInput},
                                        {"backward_weight", kBackwardWeight}}) {
    auto* bench = benchmark::RegisterBenchmark(name, run_linear, direction, peak.fma_gflop_s);
    bench->ArgNames({"M", "N", "K"})->UseRealTime()->Unit(benchmark::kMillisecond)->MinTime(0.1);
    for (const auto& [N, K] :
         {std::pair<int64_t, int64_t>{384, 384}, {1152, 384}, {2048, 384}, {384, 1024}, {3072, 768}, {768, 3072}})
      for (const int64_t M : {1, 16, 256, 512, 4096}) bench->Args({M, N, K});
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
