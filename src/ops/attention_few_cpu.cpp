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

constexpr int64_t kPages = kKeyBlock / kPageRows;  // of a block
constexpr int kLanes = int(hn::MaxLanes(Full()));
constexpr int kVectors = int(kKeyBlock) / kLanes;  // of a block's scores of one query

// The state of one head.
struct alignas(64) FewScratch {
  float q[kRowGroup * kMaxHeadDim];  // (rows, K) scaled
  float p[kRowGroup * kKeyBlock];    // (rows, keys) scores, then exponentials
  float o[kRowGroup * kMaxHeadDim];  // (rows, K)
  float max[kRowGroup], sum[kRowGroup], correction[kRowGroup];
};

// Where the keys and values of a block stand, one head's. Pages lie anywhere, which memory's own reading ahead does not
// follow: each product asks for what the next one reads.
template <class T>
struct Block {
  const T *key[kPages], *value[kPages];
};

template <class T>
Block<T> BlockOf(const PagedKv<T>& kv, int64_t head, int64_t first, int64_t keys) {
  Block<T> block;
  for (int64_t i = 0; i < kPages; i++) {
    const int64_t j = first + std::min(i * kPageRows, keys - 1);  // behind the last page, that one again
    const int32_t page = kv.page[j / kPageRows];
    block.key[i] = kv.pages.template keys<const T>(page, kv.first_head + head);
    block.value[i] = kv.pages.template values<const T>(page, kv.first_head + head);
  }
  return block;
}

// p[r,j] = sum_k q[r,k] key[k,j] of a whole block. Where keys end, what stands behind them is computed along.
template <int R, class T>
HWY_INLINE void Scores(float* p, const float* q, int64_t K, const Block<T>& block) {
  const Full d;
  hn::Vec<Full> sum[R][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
#pragma GCC unroll 64
    for (int v = 0; v < kVectors; v++) sum[r][v] = hn::Zero(d);
  for (int64_t k = 0; k < K; k++) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kPages; i++) __builtin_prefetch(block.value[i] + k * kPageRows);
#pragma GCC unroll 64
    for (int v = 0; v < kVectors; v++) {
      const int64_t j = v * kLanes;
      const auto key = load_stored(d, block.key[j / kPageRows] + k * kPageRows + j % kPageRows);
#pragma GCC unroll 4
      for (int r = 0; r < R; r++) sum[r][v] = hn::MulAdd(hn::Set(d, q[r * K + k]), key, sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; r++)
#pragma GCC unroll 64
    for (int v = 0; v < kVectors; v++) hn::Store(sum[r][v], d, p + r * kKeyBlock + v * kLanes);
}

template <class T>
void ScoreRows(float* p, const float* q, int64_t rows, int64_t K, const Block<T>& block) {
  for (; rows >= 2; rows -= 2, p += 2 * kKeyBlock, q += 2 * K) Scores<2>(p, q, K, block);
  if (rows == 1) Scores<1>(p, q, K, block);
}

// One block of the online softmax of query r, `visible` of whose keys it sees: p becomes 2^(p - max), 0 behind them.
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

// V vectors of o = correction * o + sum_j p[j] value[j] of a block, from column n on; zero to begin with if there is no
// correction.
template <int V, class T>
HWY_INLINE void Mix(float* o, const float* correction, const float* p, int64_t keys, int64_t K, int64_t n,
                    const Block<T>& block, const Block<T>& next) {
  constexpr int64_t kLine = 64 / int64_t(sizeof(T));
  const Full d;
  hn::Vec<Full> sum[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++)
    sum[v] = correction == nullptr ? hn::Zero(d) : hn::Mul(hn::Set(d, *correction), hn::Load(d, o + n + v * kLanes));
  for (int64_t j = 0; j < keys; j++) {
    const int64_t at = j % kPageRows * K + n;
    const T* ahead = next.key[j / kPageRows] + at;
    for (int64_t i = 0; i < V * kLanes; i += kLine) __builtin_prefetch(ahead + i);
    const T* value = block.value[j / kPageRows] + at;
    const auto x = hn::Set(d, p[j]);
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) sum[v] = hn::MulAdd(x, load_stored(d, value + v * kLanes), sum[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) hn::Store(sum[v], d, o + n + v * kLanes);
}

template <class T>
void MixRow(float* o, const float* correction, const float* p, int64_t keys, int64_t K, const Block<T>& block,
            const Block<T>& next) {
  for (int64_t n = 0; n < K;) {
    const int64_t left = (K - n) / kLanes, vectors = left >= 8 ? 8 : left >= 4 ? 4 : 1;
    if (vectors == 8)
      Mix<8>(o, correction, p, keys, K, n, block, next);
    else if (vectors == 4)
      Mix<4>(o, correction, p, keys, K, n, block, next);
    else
      Mix<1>(o, correction, p, keys, K, n, block, next);
    n += vectors * kLanes;
  }
}

template <class T>
void BeginHead(const ForwardSegment<float, PagedKv<T>>& in, const QueryTile& tile, int64_t head, FewScratch& s) {
  const Full d;
  const auto scale = hn::Set(d, float(std::numbers::log2e / std::sqrt(double(in.K))));
  for (int64_t r = 0; r < tile.rows; r++) {
    const int64_t u = tile.first + r;
    const float* q = in.q + u / in.group * in.q_stride + (head * in.group + u % in.group) * in.K;
    for (int64_t k = 0; k < in.K; k += kLanes) hn::Store(hn::Mul(hn::LoadU(d, q + k), scale), d, s.q + r * in.K + k);
  }
  std::fill_n(s.max, kRowGroup, -std::numeric_limits<float>::infinity());
  std::fill_n(s.sum, kRowGroup, 0.0f);
}

template <class T>
void EndHead(const ForwardSegment<float, PagedKv<T>>& in, const QueryTile& tile, int64_t head, const FewScratch& s) {
  const Full d;
  for (int64_t r = 0; r < tile.rows; r++) {
    const int64_t u = tile.first + r;
    float* o = in.o + u / in.group * in.o_stride + (head * in.group + u % in.group) * in.K;
    const auto inverse = hn::Set(d, 1 / s.sum[r]);
    for (int64_t k = 0; k < in.K; k += kLanes)  // + 0: see FinishHead
      hn::StoreU(hn::MulAdd(hn::Load(d, s.o + r * in.K + k), inverse, hn::Zero(d)), d, o + k);
  }
}

template <class T>
void AllHeads(const ForwardSegment<float, PagedKv<T>>& in, const QueryTile& tile) {
  FewScratch s;
  const int64_t all = tile.keys(), blocks = (all + kKeyBlock - 1) / kKeyBlock, K = in.K;
  const auto block_at = [&](int64_t i) {
    const int64_t first = i % blocks * kKeyBlock;
    return BlockOf(in.kv, i / blocks, first, std::min(kKeyBlock, all - first));
  };
  Block<T> block = block_at(0);
  for (int64_t i = 0; i < in.kv_heads * blocks; i++) {
    const int64_t first = i % blocks * kKeyBlock, keys = std::min(kKeyBlock, all - first);
    const Block<T> next = block_at(std::min(i + 1, in.kv_heads * blocks - 1));
    if (first == 0) BeginHead(in, tile, i / blocks, s);
    ScoreRows(s.p, s.q, tile.rows, K, block);
    for (int64_t r = 0; r < tile.rows; r++) SoftmaxRow(s, r, tile.visible_of_block(r + 1, first, keys));
    for (int64_t r = 0; r < tile.rows; r++)
      MixRow(s.o + r * K, first == 0 ? nullptr : s.correction + r, s.p + r * kKeyBlock, keys, K, block, next);
    if (first + keys == all) EndHead(in, tile, i / blocks, s);
    block = next;
  }
  count_multiply_adds(2 * tile.rows * all * K * in.kv_heads);
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
