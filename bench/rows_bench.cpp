// Ops on rows: GB/s of the bytes that each op must move, to hold beside `copy` and `read` of the same sizes.
// Sizes: 512 x 384 and 4096 x 384 floats (a routed and a dense list of a small model), and larger than the caches.
// Threads as in the environment (OMP_NUM_THREADS).
#include <benchmark/benchmark.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "base/work.h"
#include "ops/adamw.h"
#include "ops/embedding.h"
#include "ops/expert_choice.h"
#include "ops/expert_router.h"
#include "ops/residual_add.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/select.h"
#include "ops/swiglu.h"
#include "ops/widen.h"
#include "tensor/arena.h"

namespace isobath {
namespace {

// Arrays as the program has them: one arena, on huge pages where the system grants them.
class Arrays {
 public:
  Arrays(std::initializer_list<Shape> shapes) : views_(shapes.size()) {
    Plan plan;
    size_t next = 0;
    for (const Shape& shape : shapes) plan.add("array", views_[next++], shape);
    arena_ = Arena(plan);
    for (const F32& view : views_)
      for (int64_t i = 0; i < view.numel(); i++) view[i] = float(i % 251) / 251 - 0.5f;
  }
  const F32& operator[](size_t i) const { return views_[i]; }

 private:
  std::vector<F32> views_;
  Arena arena_;
};

// Every `step`-th row.
std::vector<int32_t> every(int64_t rows, int64_t step) {
  std::vector<int32_t> index(size_t(rows) / size_t(step));
  for (size_t s = 0; s < index.size(); s++) index[s] = int32_t(int64_t(s) * step);
  return index;
}
// An array's first half as rows of bf16.
Stored bf16(const F32& array) { return View<Bf16>{reinterpret_cast<Bf16*>(array.data), array.shape}; }
CI32 view(const std::vector<int32_t>& v) { return {v.data(), {int64_t(v.size())}}; }

std::vector<int32_t> positions(int64_t rows) {
  std::vector<int32_t> position(static_cast<size_t>(rows));
  for (size_t s = 0; s < position.size(); s++) position[s] = int32_t(s % 512);
  return position;
}

// Of the bytes that the op itself says it must move.
template <class F>
void measure(benchmark::State& state, F f) {
  const int64_t before = executed_bytes;
  for (auto _ : state) {
    f();
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] = benchmark::Counter(double(executed_bytes - before) * 1e-9, benchmark::Counter::kIsRate);
}

void copy(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}};
  measure(state, [&] {
    parallel_for(N, 16, [&](int64_t n) { std::memcpy(a[0].row(n), a[1].row(n), size_t(D) * 4); });
    count_bytes(bytes_of(a[0], a[1]));
  });
}

void read(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{Shape{N, D}};
  std::vector<double> partial(size_t(N * D / kSumChunk + 1));
  measure(state, [&] { benchmark::DoNotOptimize(sum_of_squares(a[0], {partial.data(), {int64_t(partial.size())}})); });
}

void rmsnorm(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}, {N}, {D}};
  measure(state, [&] { rmsnorm_forward(a[1], a[2], {}, {a[0], {}, {}}, a[3], 1e-5f); });
}

void rmsnorm_gather_save(benchmark::State& state) {  // half of the rows, saved
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{2 * N, D}, {N, D}, {N, D}, {N}, {D}};
  const auto index = every(2 * N, 2);
  measure(state, [&] { rmsnorm_forward(a[1], a[3], a[2], {a[0], view(index), {}}, a[4], 1e-5f); });
}

void rmsnorm_add(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}, {N, D}, {N}, {D}};
  measure(state, [&] { rmsnorm_forward(a[1], a[3], {}, {a[0], {}, a[2]}, a[4], 1e-5f); });
}

void rmsnorm_add_save_bf16(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}, {N, D}, {N, D}, {N}, {D}};
  measure(state, [&] { rmsnorm_forward(a[1], a[4], bf16(a[3]), {bf16(a[0]), {}, a[2]}, a[5], 1e-5f); });
}

void rmsnorm_back(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}, {N, D}, {N}, {D}, {D}, {kGradChunks, D}};
  rmsnorm_forward(a[1], a[3], {}, {a[0], {}, {}}, a[4], 1e-5f);
  measure(state, [&] { rmsnorm_backward(a[2], add_to(a[5]), a[1], a[0], a[4], a[3], a[6]); });
}

void rmsnorm_back_bf16(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}, {N, D}, {N}, {D}, {D}, {kGradChunks, D}};
  measure(state, [&] { rmsnorm_backward(a[2], add_to(a[5]), a[1], bf16(a[0]), a[4], a[3], a[6]); });
}

void swiglu(benchmark::State& state) {
  const int64_t N = state.range(0), F = state.range(1);
  const Arrays a{{N, F}, {N, 2 * F}};
  measure(state, [&] { swiglu_forward(a[0], a[1], a[1]); });
}

void swiglu_back(benchmark::State& state) {
  const int64_t N = state.range(0), F = state.range(1);
  const Arrays a{{N, F}, {N, 2 * F}, {N, 2 * F}};
  measure(state, [&] { swiglu_backward(a[2], a[0], a[1]); });
}

void swiglu_bf16(benchmark::State& state) {
  const int64_t N = state.range(0), F = state.range(1);
  const Arrays a{{N, F}, {N, 2 * F}, {N, 2 * F}};
  measure(state, [&] { swiglu_forward(a[0], bf16(a[2]), a[1]); });
}

void swiglu_back_bf16(benchmark::State& state) {
  const int64_t N = state.range(0), F = state.range(1);
  const Arrays a{{N, F}, {N, 2 * F}, {N, 2 * F}};
  measure(state, [&] { swiglu_backward(a[2], a[0], bf16(a[1])); });
}

// Heads of 64 in place of queries, keys and values.
void rope(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {512, 64}};
  const auto position = positions(N);
  measure(state, [&] { rope_forward(a[0], a[0], view(position), a[1], D / 64); });
}

void rope_bf16(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {512, 64}, {N, D}};
  const auto position = positions(N);
  measure(state, [&] { rope_forward(bf16(a[2]), a[0], view(position), a[1], D / 64); });
}

void widen_bf16(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N, D}};
  measure(state, [&] { widen(a[0], bf16(a[1]).as<Bf16>()); });
}

void router(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N}, {D}};
  measure(state, [&] { router_score(a[1], a[0], a[2], {}); });
}

void router_back_weight(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N}, {D}, {kGradChunks, D}};
  measure(state, [&] { router_backward_weight(add_to(a[2]), add_to({}), a[1], a[0], {}, a[3]); });
}

void router_back_input(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {N}, {D}};
  measure(state, [&] { router_backward_input(a[0], a[1], a[2]); });
}

void gate(benchmark::State& state) {
  const int64_t N = state.range(0);
  const Arrays a{{N}, {N}};
  measure(state, [&] { gate_forward(a[0], a[1], {}, Gate::kSigmoid); });
}

void residual_add(benchmark::State& state) {  // to half of the rows, gated
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{2 * N, D}, {N, D}, {N, D}, {N}};
  const auto index = every(2 * N, 2);
  measure(state, [&] { residual_add_forward(a[0], {}, view(index), a[3], a[1], a[2]); });
}

void residual_add_back(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{2 * N, D}, {N, D}, {N, D}, {N, D}, {N}, {N}};
  const auto index = every(2 * N, 2);
  measure(state, [&] { residual_add_backward(a[3], a[5], a[0], view(index), a[4], a[1]); });
}

void scatter(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{2 * N, D}, {N, D}, {N, D}};
  const auto index = every(2 * N, 2);
  measure(state, [&] { scatter_add(a[0], view(index), a[1], a[2]); });
}

std::vector<int32_t> random_tokens(size_t n) {
  std::vector<int32_t> token(n);
  for (size_t i = 0; i < token.size(); i++) token[i] = int32_t(Rng(1, Stream::kBench).below(256, i));
  return token;
}

void embedding(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {256, D}};
  const auto token = random_tokens(size_t(N));
  measure(state, [&] { embedding_forward(a[0], view(token), a[1]); });
}

void embedding_back(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, D}, {256, D}};
  const auto token = random_tokens(size_t(N));
  measure(state, [&] { embedding_backward(add_to(a[1]), a[0], view(token)); });
}

void adamw(benchmark::State& state) {
  const int64_t n = state.range(0) * state.range(1);
  const Arrays a{{n}, {n}, {n}, {n}};
  for (int64_t i = 0; i < n; i++) a[2][i] *= a[2][i];
  measure(state, [&] { adamw_step(a[0], a[1], a[2], a[3], {.lr = 1e-5f}, 1, 10); });
}

// 16 sequences; microseconds are what counts.
void top_k(benchmark::State& state) {
  const int64_t N = state.range(0), B = 16;
  const Arrays a{Shape{N}};
  for (int64_t n = 0; n < N; n++) a[0][n] = Rng(1, Stream::kBench).normal(uint64_t(n));
  std::vector<int32_t> begin(B + 1), chosen(B + 1), index = every(N, 1), scratch = index;
  for (int64_t s = 0; s <= B; s++) begin[size_t(s)] = int32_t(N * s / B);
  const auto list = [](std::vector<int32_t>& v) { return I32{v.data(), {int64_t(v.size())}}; };
  measure(state, [&] { select_top_k(list(index), list(chosen), a[0], view(begin), 0.125, list(scratch)); });
}

constexpr int64_t kExperts = 8;

void expert_router(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, kExperts}, {N, kExperts}, {N, D}, {N}, {D}, {kExperts, D}};
  measure(state, [&] { expert_router_forward(a[0], a[1], {a[2], a[3], a[4]}, a[5]); });
}
void expert_router_back(benchmark::State& state) {
  const int64_t N = state.range(0), D = state.range(1);
  const Arrays a{{N, kExperts}, {N, D}, {N}, {D}, {kExperts, D}, {kGradChunks, kExperts * D}, {N, D}};
  measure(state, [&] {
    expert_router_backward_weight(add_to(a[4]), a[0], {a[1], a[2], a[3]}, a[5]);
    expert_router_backward_input(add_to(a[6]), a[0], a[4]);
  });
}
void choose_two_experts(benchmark::State& state) {
  const int64_t N = state.range(0);
  const Arrays a{{N, kExperts}, {N, kExperts}, {2 * N}};
  std::vector<int32_t> place(size_t(N * kExperts)), row(size_t(2 * N)), begin(size_t(kExperts + 1)),
      runs{0, int32_t(N)};
  const ExpertLists lists{.place = {place.data(), {N, kExperts}},
                          .row = {row.data(), {2 * N}},
                          .begin = {begin.data(), {kExperts + 1}},
                          .weight = a[2]};
  measure(state, [&] { choose_by_token(lists, a[0], a[1], view(runs), {.per_row = 2}); });
}

void sizes(benchmark::internal::Benchmark* b) {
  b->Args({512, 384})->Args({4096, 384})->Args({131072, 384})->UseRealTime()->Unit(benchmark::kMicrosecond);
}
void rows(benchmark::internal::Benchmark* b) { b->Arg(4096)->Arg(65536)->UseRealTime()->Unit(benchmark::kMicrosecond); }
BENCHMARK(copy)->Apply(sizes);
BENCHMARK(read)->Apply(sizes);
BENCHMARK(rmsnorm)->Apply(sizes);
BENCHMARK(rmsnorm_gather_save)->Apply(sizes);
BENCHMARK(rmsnorm_add)->Apply(sizes);
BENCHMARK(rmsnorm_add_save_bf16)->Apply(sizes);
BENCHMARK(rmsnorm_back)->Apply(sizes);
BENCHMARK(rmsnorm_back_bf16)->Apply(sizes);
BENCHMARK(swiglu)->Apply(sizes);
BENCHMARK(swiglu_bf16)->Apply(sizes);
BENCHMARK(swiglu_back)->Apply(sizes);
BENCHMARK(swiglu_back_bf16)->Apply(sizes);
BENCHMARK(rope)->Apply(sizes);
BENCHMARK(rope_bf16)->Apply(sizes);
BENCHMARK(widen_bf16)->Apply(sizes);
BENCHMARK(router)->Apply(sizes);
BENCHMARK(router_back_weight)->Apply(sizes);
BENCHMARK(router_back_input)->Apply(sizes);
BENCHMARK(residual_add)->Apply(sizes);
BENCHMARK(residual_add_back)->Apply(sizes);
BENCHMARK(scatter)->Apply(sizes);
BENCHMARK(embedding)->Apply(sizes);
BENCHMARK(embedding_back)->Apply(sizes);
BENCHMARK(adamw)->Apply(sizes);
BENCHMARK(gate)->Apply(rows);
BENCHMARK(top_k)->Apply(rows);
BENCHMARK(expert_router)->Apply(sizes);
BENCHMARK(expert_router_back)->Apply(sizes);
BENCHMARK(choose_two_experts)->Apply(rows);

}  // namespace
}  // namespace isobath

BENCHMARK_MAIN();
