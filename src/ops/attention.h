// Causal grouped-query attention over lists of rows with segments. No T x T matrix is ever in memory.
//
//   o[i,h] = sum_j p[i,h,j] v[j,g],   p[i,h,.] = softmax_j(<q[i,h], k[j,g]> / sqrt(K)),   g = h / (H/G)
// where j runs over the rows of i's own segment up to and including i itself (list order is position order).
// A row of `qkv` is H*K queries, G*K keys, G*K values.   o (S, H*K)   lse (S,H) = log-sum-exp, kept for backward.
// qkv and o are fp32, or both bf16: widened as they are read, o rounded once, as it is written. All between is fp32.
//
// Bits: a query walks key blocks of kKeyBlock keys counted from the first key of its segment; every element is summed
// in an order that depends on the key's place in the segment only. So a row's output has the same bits alone, among
// other segments, in chunks or whole, against keys in `qkv` or in a cache, for any number of threads.
// Source: Dao et al. 2022, arXiv:2205.14135 (online softmax), Ainslie et al. 2023, arXiv:2305.13245 (grouped queries).
#pragma once

#include <cstdint>
#include <span>

#include "tensor/stored.h"

namespace isobath {

inline constexpr int64_t kKeyBlock = 64;
inline constexpr int64_t kMaxHeadDim = 256;

struct Heads {
  int64_t H, G, K;  // query heads, key/value heads (G divides H), head size <= kMaxHeadDim
  int64_t q_cols() const { return H * K; }
  int64_t kv_cols() const { return G * K; }
  int64_t qkv_cols() const { return (H + 2 * G) * K; }
};

// Training and uncached evaluation: the keys are the list's own. segment_begin (segments + 1), first 0, last S.
// Empty segments are allowed. Every element of dqkv is written.
void attention_forward(Stored o, F32 lse, CStored qkv, CI32 segment_begin, const Heads& heads);
void attention_backward(F32 dqkv, CF32 do_, CStored qkv, CStored o, CF32 lse, CI32 segment_begin, const Heads& heads);

// Generation: the keys of a segment stand in a cache, rows of G*K floats. The segment's queries are rows
// [query_begin, query_begin + query_count) of qkv; their own keys are already the last query_count of key_count rows.
struct CachedSegment {
  int64_t query_begin, query_count;
  const float* key;    // (key_count, G*K)
  const float* value;  // (key_count, G*K)
  int64_t key_count;
};
void attention_cached(F32 o, CF32 qkv, std::span<const CachedSegment> segments, const Heads& heads);

// Multiply-adds that the kernels execute for a segment of n rows, all heads: the (query, key) pairs of every product
// that the loops visit. That is the causal half and, along the diagonal, the masked pairs of partly visible steps of
// kColumnStep queries or kRowGroup rows (attention_tile.h). Lanes that pad a vector are not counted.
int64_t attention_forward_multiply_adds(int64_t n, const Heads& heads);
int64_t attention_backward_multiply_adds(int64_t n, const Heads& heads);
// The same for attention_cached: `queries` rows at the end of `keys` keys.
int64_t attention_cached_multiply_adds(int64_t queries, int64_t keys, const Heads& heads);

}  // namespace isobath
