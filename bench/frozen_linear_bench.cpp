// FrozenLinear beside Linear, for the matrices of a model of width 768, 12 blocks, MLP width 2048, vocabulary 32000:
//   few rows    one pass over all of the model's weights, in GB/s and as a share of the machine's reading bandwidth
//   many rows   the four products of a block, in GFLOP/s and as a share of its FMA peak
// Interleaved rounds; the machine's peak is the best that was measured in any.
//   frozen_linear_bench [rounds]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/machine.h"
#include "ops/adamw.h"
#include "ops/frozen_linear.h"
#include "ops/linear.h"
#include "tensor/arena.h"

namespace isobath {
namespace {

constexpr int64_t kBlocks = 12, kMostRows = 2048, kFewRows = 64;
const std::vector<std::pair<int64_t, int64_t>> kBlockSizes = {{2304, 768}, {768, 768}, {4096, 768}, {768, 2048}};

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The products of one kind of weights; run(i, M) is matrix i with M rows.
struct Products {
  std::string name;
  std::vector<std::pair<int64_t, int64_t>> sizes;
  std::deque<FrozenLinear> frozen;
  std::deque<Linear> linear;
  F32 x, y;
  Arena arena;
  int64_t bytes = 0;

  void run(size_t i, int64_t M) {
    const auto [N, K] = sizes[i];
    const F32 to{y.data, {M, N}};
    const CF32 from{x.data, {M, K}};
    frozen.empty() ? linear[i].forward(to, from) : frozen[i].forward(to, from);
  }
};

// A whole model's matrices for passes of few rows, or one block's for many.
void make(Products& p, const std::string& name, bool whole, bool is_frozen, WeightFormat format) {
  p.name = name;
  for (int64_t block = 0; block < (whole ? kBlocks : 1); block++)
    p.sizes.insert(p.sizes.end(), kBlockSizes.begin(), kBlockSizes.end());
  if (whole) p.sizes.emplace_back(32000, 768);
  const int64_t max_rows = whole ? kFewRows : kMostRows;
  Plan plan;
  for (const auto& [N, K] : p.sizes) {
    if (is_frozen) {
      p.frozen.emplace_back().plan(plan, "w", {.N = N, .K = K, .max_rows = max_rows, .format = format});
    } else {
      const int64_t exact[] = {1, 4, 16, 64, 256, 2048};
      p.linear.emplace_back().plan(
          plan, "w", {.N = N, .K = K, .max_rows = max_rows, .exact = {exact, whole ? 4u : 6u}, .backward = false});
    }
  }
  for (const Plan::Entry& entry : plan.entries()) p.bytes += entry.bytes;
  int64_t widest = 0;
  for (const auto& [N, K] : p.sizes) widest = std::max(widest, N);
  plan.add("x", p.x, {max_rows, 2048});
  plan.add("y", p.y, {max_rows, widest});
  p.arena = Arena(plan);
  for (int64_t i = 0; i < p.x.numel(); i++) p.x[i] = float(i * 7 % 13) / 13 - 0.5f;
  std::vector<float> W(size_t(widest * 768));
  for (size_t i = 0; i < W.size(); i++) W[i] = float(i * 5 % 17) / 17 - 0.5f;
  for (size_t i = 0; i < p.sizes.size(); i++) {
    const auto [N, K] = p.sizes[i];
    is_frozen ? p.frozen[i].pack({W.data(), {N, K}}) : p.linear[i].pack({W.data(), {N, K}});
  }
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// Several calls in a row, each timed on its own: the best of each is what undisturbed calls take in their order, which
// a whole pass on a shared machine seldom is.
struct Row {
  std::string name, unit;
  double work;  // of all calls
  std::vector<std::function<void()>> calls;
  std::vector<double> best_s, pass_s;
};

void pass(Row& row) {
  row.best_s.resize(row.calls.size(), 1e9);
  row.pass_s.push_back(0);
  for (size_t i = 0; i < row.calls.size(); i++) {
    const double start = now_s();
    row.calls[i]();
    const double took = now_s() - start;
    row.best_s[i] = std::min(row.best_s[i], took);
    row.pass_s.back() += took;
  }
}

void measure(std::vector<Row>& rows, int rounds, MachinePeak& peak) {
  for (int round = 0; round < rounds; round++) {
    const MachinePeak now = measure_machine_peak(0.1);
    peak.fma_gflop_s = std::max(peak.fma_gflop_s, now.fma_gflop_s);
    peak.read_gb_s = std::max(peak.read_gb_s, now.read_gb_s);
    for (Row& row : rows)
      for (const double begin = now_s(); now_s() - begin < 0.03;) pass(row);
  }
  for (const Row& row : rows) {
    const double best = row.work / 1e9 / std::accumulate(row.best_s.begin(), row.best_s.end(), 0.0);
    fmt::print("{:36} {:7.1f} {:7} = {:5.1f}% of peak; median of passes {:7.1f}\n", row.name, best, row.unit,
               100 * best / (row.unit == "GB/s" ? peak.read_gb_s : peak.fma_gflop_s),
               row.work / 1e9 / median(row.pass_s));
  }
}

void few_rows(std::deque<Products>& all, int rounds, MachinePeak& peak) {
  std::vector<Row> rows;
  for (const int64_t M : {1, 2, 4, 8, 16, 64})
    for (Products& p : all) {
      Row& row =
          rows.emplace_back(Row{fmt::format("{}, whole model, M {}", p.name, M), "GB/s", double(p.bytes), {}, {}, {}});
      for (size_t i = 0; i < p.sizes.size(); i++) row.calls.push_back([&p, i, M] { p.run(i, M); });
    }
  // The same bytes in the same portions, only read.
  Row& read = rows.emplace_back(Row{"reading alone", "GB/s", double(all[0].bytes), {}, {}, {}});
  const float* at = reinterpret_cast<const float*>(all[0].arena.data());
  for (const auto& [N, K] : all[0].sizes) {
    const CF32 part{at, {N, K}};
    read.calls.push_back([part] {
      static std::vector<double> partial(32000 * 768 / kSumChunk + 1);
      if (sum_of_squares(part, {partial.data(), {int64_t(partial.size())}}) < 0) std::abort();
    });
    at += N * K;
  }
  measure(rows, rounds, peak);
}

void many_rows(std::deque<Products>& all, int rounds, MachinePeak& peak) {
  std::vector<Row> rows;
  for (const int64_t M : {256, 2048})
    for (size_t i = 0; i < kBlockSizes.size(); i++)
      for (Products& p : all) {
        const auto [N, K] = p.sizes[i];
        rows.push_back({fmt::format("{}, N {} K {}, M {}", p.name, N, K, M),
                        "GFLOP/s",
                        2.0 * double(M * N * K),
                        {[&p, i, M] { p.run(i, M); }},
                        {},
                        {}});
      }
  measure(rows, rounds, peak);
}

void make_all(std::deque<Products>& all, bool whole) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8})
    make(all.emplace_back(), std::string(name_of(format)), whole, true, format);
  make(all.emplace_back(), "library fp32", whole, false, {});
}

}  // namespace
}  // namespace isobath

int main(int argc, char** argv) {
  using namespace isobath;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  MachinePeak peak = measure_machine_peak();
  fmt::print("{}, {} threads, {}: {:.0f} GFLOP/s fp32 FMA, {:.1f} GB/s read; {}\n", peak.cpu, peak.threads, peak.simd,
             peak.fma_gflop_s, peak.read_gb_s, linear_library());
  {
    std::deque<Products> all;
    make_all(all, /*whole=*/true);
    few_rows(all, rounds, peak);
  }
  std::deque<Products> all;
  make_all(all, /*whole=*/false);
  many_rows(all, rounds, peak);
  fmt::print("peak, best of all rounds: {:.0f} GFLOP/s, {:.1f} GB/s\n", peak.fma_gflop_s, peak.read_gb_s);
  return 0;
}
