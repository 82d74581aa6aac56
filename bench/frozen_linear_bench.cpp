// FrozenLinear beside Linear, for the matrices of a model of width 768, 12 blocks, MLP width 2048, vocabulary 32000:
//   few rows    all of the model's weights in turn: GB/s, and the share of what only reading the same bytes gives
//   many rows   the four products of a block: GFLOP/s, and the share of the machine's FMA peak
// Rounds are interleaved. On a shared machine OMP_PROC_BIND=true keeps two threads from meeting on one core.
//   frozen_linear_bench [rounds]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
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

enum class Size { kWholeModel, kOneBlock };

void plan(Products& p, Plan& plan, Size size, bool is_frozen, WeightFormat format) {
  const bool whole = size == Size::kWholeModel;
  for (int64_t block = 0; block < (whole ? kBlocks : 1); block++)
    p.sizes.insert(p.sizes.end(), kBlockSizes.begin(), kBlockSizes.end());
  if (whole) p.sizes.emplace_back(32000, 768);
  const int64_t exact[] = {1, 2, 4, 8, 16, 64, 256, 2048}, max_rows = whole ? kFewRows : kMostRows;
  for (const auto& [N, K] : p.sizes)
    if (is_frozen)
      p.frozen.emplace_back().plan(plan, "w", {.N = N, .K = K, .max_rows = max_rows, .format = format});
    else
      p.linear.emplace_back().plan(
          plan, "w", {.N = N, .K = K, .max_rows = max_rows, .exact = {exact, whole ? 6u : 8u}, .backward = false});
  for (const Plan::Entry& entry : plan.entries()) p.bytes += entry.bytes;
  plan.add("x", p.x, {max_rows, 2048});
  plan.add("y", p.y, {max_rows, whole ? 32000 : 4096});
}

void make(Products& p, const std::string& name, Size size, bool is_frozen, WeightFormat format) {
  p.name = name;
  Plan memory;
  plan(p, memory, size, is_frozen, format);
  p.arena = Arena(memory);
  for (int64_t i = 0; i < p.x.numel(); i++) p.x[i] = float(i * 7 % 13) / 13 - 0.5f;
  std::vector<float> W(32000 * 768);
  for (size_t i = 0; i < W.size(); i++) W[i] = float(i * 5 % 17) / 17 - 0.5f;
  for (size_t i = 0; i < p.sizes.size(); i++) {
    const CF32 from{W.data(), {p.sizes[i].first, p.sizes[i].second}};
    is_frozen ? p.frozen[i].pack(from) : p.linear[i].pack(from);
  }
}

std::deque<Products> make_all(Size size) {
  std::deque<Products> all;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8})
    make(all.emplace_back(), std::string(name_of(format)), size, true, format);
  make(all.emplace_back(), "library fp32", size, false, {});
  return all;
}

// Several calls in a row, each timed on its own: the best of each is what undisturbed calls take in their order, which
// a whole pass on a shared machine seldom is.
struct Row {
  std::string name;
  double work;  // of all calls, in units of 1e9
  std::vector<std::function<void()>> calls;
  std::vector<double> best_s{}, pass_s{};

  void pass() {
    best_s.resize(calls.size(), 1e9);
    pass_s.push_back(0);
    for (size_t i = 0; i < calls.size(); i++) {
      const double start = now_s();
      calls[i]();
      const double took = now_s() - start;
      best_s[i] = std::min(best_s[i], took);
      pass_s.back() += took;
    }
  }
  double best() const { return work / std::accumulate(best_s.begin(), best_s.end(), 0.0); }
  double median() const {
    std::vector<double> sorted = pass_s;
    std::sort(sorted.begin(), sorted.end());
    return work / sorted[sorted.size() / 2];
  }
};

void measure(std::vector<Row>& rows, int rounds) {
  for (int round = 0; round < rounds; round++)
    for (Row& row : rows)
      for (const double begin = now_s(); now_s() - begin < 0.03;) row.pass();
}

void print(const std::vector<Row>& rows, const char* unit, double limit) {
  for (const Row& row : rows)
    fmt::print("{:36} {:7.1f} {} best = {:5.1f}% of {:.1f}; {:7.1f} median\n", row.name, row.best(), unit,
               100 * row.best() / limit, limit, row.median());
}

// Each fp32 matrix's share of its arena, read.
Row reading(const Products& p) {
  Row row{"reading alone", double(p.bytes) / 1e9, {}};
  const float* at = reinterpret_cast<const float*>(p.arena.data());
  for (const auto& [N, K] : p.sizes) {
    row.calls.push_back([part = CF32{at, {N, K}}] {
      static std::vector<double> partial(32000 * 768 / kSumChunk + 1);
      if (sum_of_squares(part, {partial.data(), {int64_t(partial.size())}}) < 0) std::abort();
    });
    at += N * K;
  }
  return row;
}

void few_rows(int rounds) {
  std::deque<Products> all = make_all(Size::kWholeModel);
  std::vector<Row> rows = {reading(all[0])};
  for (const int64_t M : {1, 2, 4, 8, 16, 64})
    for (Products& p : all) {
      Row& row = rows.emplace_back(Row{fmt::format("{}, whole model, M {}", p.name, M), double(p.bytes) / 1e9, {}});
      for (size_t i = 0; i < p.sizes.size(); i++) row.calls.push_back([&p, i, M] { p.run(i, M); });
    }
  measure(rows, rounds);
  print(rows, "GB/s", rows[0].best());
}

void many_rows(int rounds, double peak) {
  std::deque<Products> all = make_all(Size::kOneBlock);
  std::vector<Row> rows;
  for (const int64_t M : {256, 2048})
    for (size_t i = 0; i < kBlockSizes.size(); i++)
      for (Products& p : all) {
        const auto [N, K] = p.sizes[i];
        rows.push_back({fmt::format("{}, N {} K {}, M {}", p.name, N, K, M), 2e-9 * double(M * N * K), {[&p, i, M] {
                          p.run(i, M);
                        }}});
      }
  measure(rows, rounds);
  print(rows, "GFLOP/s", peak);
}

}  // namespace
}  // namespace isobath

int main(int argc, char** argv) {
  using namespace isobath;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 7;
  const MachinePeak peak = measure_machine_peak(1);
  fmt::print("{}, {} threads, {}: {:.0f} GFLOP/s fp32 FMA, {:.1f} GB/s read; {}\n", peak.cpu, peak.threads, peak.simd,
             peak.fma_gflop_s, peak.read_gb_s, linear_library());
  few_rows(rounds);
  many_rows(rounds, peak.fma_gflop_s);
  return 0;
}
