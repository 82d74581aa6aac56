// Attention of a few queries to keys in pages, on the CPU. Lanes go over keys for the scores and the softmax, over the
// numbers of a head for the mix; each element is summed in the order of attention_cpu.cpp, so the bits are the same.
#include "base/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_few_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "base/work.h"
#include "ops/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::cpu::HWY_NAMESPACE {
namespace {

constexpr int kLanes = int(hn::MaxLanes(Full()));
constexpr int kPageVectors = int(kPageRows) / kLanes;  // of the scores of one query
constexpr int kVectors = int(kKeyBlock) / kLanes;
constexpr int64_t kMostHeads = kQueryTile / kColumnStep, kMostRows = kMostHeads * kRowGroup;

// The state of a task's heads, side by side: a row for each query of each head.
struct alignas(64) FewScratch {
  float q[kMostRows * kMaxHeadDim];  // (rows, K) scaled
  float p[kMostRows * kKeyBlock];    // (rows, keys) scores, then exponentials
  float o[kMostRows * kMaxHeadDim];  // (rows, K)
  float max[kMostRows], sum[kMostRows], correction[kMostRows];
};

// Memory is read in its own order, a page's keys of all heads and then its values, and every line is asked for a page
// ahead. Into the second-level cache: the first one waits for too few lines at a time.
template <class T>
HWY_INLINE void ask(const T* line) {
  __builtin_prefetch(line, 0, 2);
}

// p[r,j] = sum_k q[r,k] key[k,j] of R rows of each of S heads, whose keys of a page follow each other; heads are
// `tile_rows` rows apart. Where keys end, what stands behind them is computed along.
template <int S, int R, class T>
HWY_INLINE void Scores(float* p, const float* q, int64_t tile_rows, int64_t K, const T* key, const T* ahead) {
  const Full d;
  hn::Vec<Full> sum[S][R][kPageVectors];
#pragma GCC unroll 2
  for (int s = 0; s < S; s++)
#pragma GCC unroll 2
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int v = 0; v < kPageVectors; v++) sum[s][r][v] = hn::Zero(d);
  for (int64_t k = 0; k < K; k++) {
#pragma GCC unroll 2
    for (int s = 0; s < S; s++) {
      const int64_t at = (s * K + k) * kPageRows;
      ask(ahead + at);
#pragma GCC unroll 4
      for (int v = 0; v < kPageVectors; v++) {
        const auto keys = load_stored(d, key + at + v * kLanes);
#pragma GCC unroll 2
        for (int r = 0; r < R; r++)
          sum[s][r][v] = hn::MulAdd(hn::Set(d, q[(s * tile_rows + r) * K + k]), keys, sum[s][r][v]);
      }
    }
  }
#pragma GCC unroll 2
  for (int s = 0; s < S; s++)
#pragma GCC unroll 2
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
      for (int v = 0; v < kPageVectors; v++)
        hn::Store(sum[s][r][v], d, p + (s * tile_rows + r) * kKeyBlock + v * kLanes);
}

// All rows of S heads.
template <int S, class T>
HWY_INLINE void ScoreHeads(float* p, const float* q, int64_t rows, int64_t K, const T* key, const T* ahead) {
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) Scores<S, 2>(p + r * kKeyBlock, q + r * K, rows, K, key, ahead);
  if (r < rows) Scores<S, 1>(p + r * kKeyBlock, q + r * K, rows, K, key, ahead);
}

// Of a page, whose keys in the block are the first of p.
template <class T>
void ScorePage(FewScratch& s, float* p, int64_t heads, int64_t rows, int64_t K, const T* key, const T* ahead) {
  for (int64_t h = 0; h < heads; h += 2) {
    const int64_t at = h * K * kPageRows, row = h * rows;
    if (h + 1 < heads)
      ScoreHeads<2>(p + row * kKeyBlock, s.q + row * K, rows, K, key + at, ahead + at);
    else
      ScoreHeads<1>(p + row * kKeyBlock, s.q + row * K, rows, K, key + at, ahead + at);
  }
}

// One block of the online softmax of row r of the scratch, `visible` of whose keys it sees: p becomes 2^(p - max), 0
// behind them.
void SoftmaxRow(FewScratch& s, int64_t r, int64_t visible) {
  const Full d;
  float* p = s.p + r * kKeyBlock;
  std::fill(p + visible, p + kKeyBlock, -std::numeric_limits<float>::infinity());
  auto block_max = hn::Load(d, p);
  for (int v = 1; v < kVectors; v++) block_max = hn::Max(block_max, hn::Load(d, p + v * kLanes));
  const auto old_max = hn::Set(d, s.max[r]), max = hn::Max(old_max, hn::MaxOfLanes(d, block_max));
  for (int v = 0; v < kVectors; v++) hn::Store(Exp2(d, hn::Sub(hn::Load(d, p + v * kLanes), max)), d, p + v * kLanes);
  float sum = 0;
  for (int64_t j = 0; j < visible; j++) sum += p[j];  // in order
  const auto correction = Exp2(d, hn::Sub(old_max, max));
  s.max[r] = hn::GetLane(max);
  s.correction[r] = hn::GetLane(correction);
  s.sum[r] = hn::GetLane(hn::MulAdd(hn::Set(d, s.sum[r]), correction, hn::Set(d, sum)));
}

// V vectors of o = correction * o + sum_j p[j] value[j] of a page, from column n on; zero to begin with if there is no
// correction.
template <int V, class T>
HWY_INLINE void Mix(float* o, const float* correction, const float* p, int64_t keys, int64_t K, const T* value,
                    const T* ahead) {
  constexpr int64_t kLine = 64 / int64_t(sizeof(T));
  const Full d;
  hn::Vec<Full> sum[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++)
    sum[v] = correction == nullptr ? hn::Zero(d) : hn::Mul(hn::Set(d, *correction), hn::Load(d, o + v * kLanes));
  for (int64_t j = 0; j < keys; j++) {
    for (int64_t i = 0; i < V * kLanes; i += kLine) ask(ahead + j * K + i);
    const auto x = hn::Set(d, p[j]);
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) sum[v] = hn::MulAdd(x, load_stored(d, value + j * K + v * kLanes), sum[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) hn::Store(sum[v], d, o + v * kLanes);
}

template <class T>
void MixRow(float* o, const float* correction, const float* p, int64_t keys, int64_t K, const T* value,
            const T* ahead) {
  for (int64_t n = 0; n < K;) {
    const int64_t left = (K - n) / kLanes, vectors = left >= 8 ? 8 : left >= 4 ? 4 : 1;
    if (vectors == 8)
      Mix<8>(o + n, correction, p, keys, K, value + n, ahead + n);
    else if (vectors == 4)
      Mix<4>(o + n, correction, p, keys, K, value + n, ahead + n);
    else
      Mix<1>(o + n, correction, p, keys, K, value + n, ahead + n);
    n += vectors * kLanes;
  }
}

// f(row of the scratch, where the query or its output stands in a row of the segment, in that of `stride`).
template <class F>
void for_each_row(int64_t kv_heads, int64_t group, int64_t K, int64_t stride, const QueryTile& tile, F f) {
  for (int64_t i = 0; i < kv_heads * tile.rows; i++) {
    const int64_t head = i / tile.rows, u = tile.first + i % tile.rows;
    f(i, u / group * stride + (head * group + u % group) * K);
  }
}

template <class T>
void Begin(const ForwardSegment<float, PagedKv<T>>& in, const QueryTile& tile, FewScratch& s) {
  const Full d;
  const auto scale = hn::Set(d, float(std::numbers::log2e / std::sqrt(double(in.K))));
  for_each_row(in.kv_heads, in.group, in.K, in.q_stride, tile, [&](int64_t i, int64_t at) HWY_ATTR {
    for (int64_t k = 0; k < in.K; k += kLanes)
      hn::Store(hn::Mul(hn::LoadU(d, in.q + at + k), scale), d, s.q + i * in.K + k);
    s.max[i] = -std::numeric_limits<float>::infinity();
    s.sum[i] = 0;
  });
}

template <class T>
void End(const ForwardSegment<float, PagedKv<T>>& in, const QueryTile& tile, const FewScratch& s) {
  const Full d;
  for_each_row(in.kv_heads, in.group, in.K, in.o_stride, tile, [&](int64_t i, int64_t at) HWY_ATTR {
    const auto inverse = hn::Set(d, 1 / s.sum[i]);
    for (int64_t k = 0; k < in.K; k += kLanes)  // + 0: see FinishHead
      hn::StoreU(hn::MulAdd(hn::Load(d, s.o + i * in.K + k), inverse, hn::Zero(d)), d, in.o + at + k);
  });
}

template <class T>
void AllHeads(const ForwardSegment<float, PagedKv<T>>& in, const QueryTile& tile) {
  constexpr float kOne = 1;
  FewScratch s;
  const int64_t all = tile.keys(), K = in.K, rows = tile.rows;
  const auto page_of = [&](int64_t key) { return in.kv.page[std::min(key, all - 1) / kPageRows]; };  // or the last one
  const auto keys_at = [&](int64_t j) { return in.kv.pages.template keys<const T>(page_of(j), in.kv.first_head); };
  const auto values_at = [&](int64_t j) { return in.kv.pages.template values<const T>(page_of(j), in.kv.first_head); };
  Begin(in, tile, s);
  for (int64_t first = 0; first < all; first += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, all - first);
    for (int64_t j = 0; j < keys; j += kPageRows)
      ScorePage(s, s.p + j, in.kv_heads, rows, K, keys_at(first + j),
                j + kPageRows < keys ? keys_at(first + j + kPageRows) : values_at(first));
    for (int64_t i = 0; i < in.kv_heads * rows; i++) SoftmaxRow(s, i, tile.visible_of_block(i % rows + 1, first, keys));
    for (int64_t j = 0; j < keys; j += kPageRows) {
      const T *value = values_at(first + j),
              *ahead = j + kPageRows < keys ? values_at(first + j + kPageRows) : keys_at(first + kKeyBlock);
      for (int64_t i = 0; i < in.kv_heads * rows; i++) {
        const float* correction = j > 0 ? &kOne : first > 0 ? s.correction + i : nullptr;
        const int64_t at = i / rows * K * kPageRows;
        MixRow(s.o + i * K, correction, s.p + i * kKeyBlock + j, std::min(kPageRows, keys - j), K, value + at,
               ahead + at);
      }
    }
  }
  End(in, tile, s);
  count_multiply_adds(2 * rows * all * K * in.kv_heads);
}
void HeadsF32(const ForwardSegment<float, PagedKv<float>>& in, const QueryTile& tile) { AllHeads(in, tile); }
void HeadsBf16(const ForwardSegment<float, PagedKv<Bf16>>& in, const QueryTile& tile) { AllHeads(in, tile); }

}  // namespace
}  // namespace isobath::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::cpu {

HWY_EXPORT(HeadsF32);
HWY_EXPORT(HeadsBf16);
void few_queries(const ForwardSegment<float, PagedKv<float>>& in, const QueryTile& tile) {
  HWY_DYNAMIC_DISPATCH(HeadsF32)(in, tile);
}
void few_queries(const ForwardSegment<float, PagedKv<Bf16>>& in, const QueryTile& tile) {
  HWY_DYNAMIC_DISPATCH(HeadsBf16)(in, tile);
}

}  // namespace isobath::cpu
#endif  // HWY_ONCE
