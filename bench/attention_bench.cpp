// Attention in GFLOP/s by the convention of causal halves: 2 n^2 K H FLOPs forward per segment of n rows (two products,
// two FLOPs a multiply-add, half of the square), 2.5 times that backward. Arguments: segment length, head size.
// forward_bf16 and backward_bf16: the same of queries, keys, values and outputs that are kept in bf16.
#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "base/rng.h"
#include "ops/attention.h"

namespace isobath {
namespace {

constexpr int64_t kRows = 4096;

struct Problem {
  Heads heads;
  int64_t rows;
  std::vector<int32_t> begin;
  Storage storage;
  std::vector<float> qkv, o, lse, d_o, dqkv;  // qkv and o hold bf16 in their first half on request

  Problem(int64_t n, const Heads& h, Storage storage) : heads(h), rows(std::max(n, kRows)), storage(storage) {
    for (int64_t row = 0; row <= rows; row += n) begin.push_back(int32_t(row));
    qkv = random(heads.qkv_cols(), 1);
    if (storage == Storage::kBf16)
      for (size_t i = 0; i < qkv.size(); i++) reinterpret_cast<Bf16*>(qkv.data())[i] = to_stored<Bf16>(qkv[i]);
    d_o = random(heads.q_cols(), 2);
    o.resize(d_o.size()), dqkv.resize(qkv.size()), lse.resize(size_t(rows * heads.H));
  }
  std::vector<float> random(int64_t cols, uint64_t seed) const {
    std::vector<float> values(size_t(rows * cols));
    const Rng rng(seed, Stream::kBench);
    for (size_t i = 0; i < values.size(); i++) values[i] = float(rng.uniform(i)) * 2 - 1;
    return values;
  }
  void forward() { attention_forward(o_view(), lse_view(), qkv_view(), begin_view(), heads); }
  void backward() {
    attention_backward({dqkv.data(), {rows, heads.qkv_cols()}}, {d_o.data(), {rows, heads.q_cols()}}, qkv_view(),
                       o_view(), lse_view(), begin_view(), heads);
  }
  Stored o_view() { return {reinterpret_cast<std::byte*>(o.data()), {rows, heads.q_cols()}, storage}; }
  F32 lse_view() { return {lse.data(), {rows, heads.H}}; }
  CStored qkv_view() const {
    return {reinterpret_cast<const std::byte*>(qkv.data()), {rows, heads.qkv_cols()}, storage};
  }
  CI32 begin_view() const { return {begin.data(), {int64_t(begin.size())}}; }
  double forward_flops(int64_t n) const { return 2.0 * double(rows * n * heads.K * heads.H); }
};

void report(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

Heads heads_of(int64_t head_dim) { return {384 / head_dim, 384 / head_dim, head_dim}; }

template <Storage storage>
void forward_in(benchmark::State& state) {
  Problem p(state.range(0), heads_of(state.range(1)), storage);
  for (auto _ : state) p.forward();
  report(state, p.forward_flops(state.range(0)));
}

template <Storage storage>
void backward_in(benchmark::State& state) {
  Problem p(state.range(0), heads_of(state.range(1)), storage);
  p.forward();
  for (auto _ : state) p.backward();
  report(state, 2.5 * p.forward_flops(state.range(0)));
}

// One new row for each of `batch` sequences of `keys` keys; GB/s over the cached keys and values.
void decode(benchmark::State& state) {
  const Heads heads{12, 12, 64};
  const int64_t batch = state.range(0), keys = state.range(1);
  KvPages pages{.data = nullptr, .G = heads.G, .K = heads.K};
  std::vector<float> qkv(size_t(batch * heads.qkv_cols()), 0.5f), o(size_t(batch * heads.q_cols()));
  std::vector<float> memory(size_t(batch * pages_for(keys) * pages.page_bytes() / 4), 0.25f);
  pages.data = reinterpret_cast<std::byte*>(memory.data());
  std::vector<int32_t> page(size_t(batch * pages_for(keys)));
  std::iota(page.begin(), page.end(), 0);
  std::vector<CachedSegment> segments;
  for (int64_t b = 0; b < batch; b++) segments.push_back({b, 1, page.data() + b * pages_for(keys), keys});
  for (auto _ : state)
    attention_cached({o.data(), {batch, heads.q_cols()}}, {qkv.data(), {batch, heads.qkv_cols()}}, segments, pages,
                     heads);
  state.counters["GB/s"] = benchmark::Counter(double(batch * keys * pages.row_bytes()) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void sizes(benchmark::internal::Benchmark* b) {
  for (const int n : {128, 256, 1024, 4096}) b->Args({n, 64});
  b->Args({1024, 32})->Args({1024, 128})->Args({8192, 64});
  b->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(forward_in<Storage::kF32>)->Name("forward")->Apply(sizes);
BENCHMARK(forward_in<Storage::kBf16>)->Name("forward_bf16")->Apply(sizes);
BENCHMARK(backward_in<Storage::kF32>)->Name("backward")->Apply(sizes);
BENCHMARK(backward_in<Storage::kBf16>)->Name("backward_bf16")->Apply(sizes);
BENCHMARK(decode)->Args({1, 1024})->Args({1, 16384})->Args({8, 1024})->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace isobath

BENCHMARK_MAIN();
