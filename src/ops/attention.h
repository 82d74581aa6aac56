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

#include "ops/kv_pages.h"
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

// The same for the queries of some rows over the keys of more: q (S, H*K), and kv (N, 2*G*K), a row of which is G*K
// keys and G*K values. Segment i is queries [q_begin[i], q_begin[i+1]) and keys [kv_begin[i], kv_begin[i+1]); query s
// sees the first seen[s] keys of its segment, 1 or more, ascending in a segment. Every element of dq and dkv is
// written.
void attention_over_forward(Stored o, F32 lse, CStored q, CStored kv, CI32 q_begin, CI32 kv_begin, CI32 seen,
                            const Heads& heads);
void attention_over_backward(F32 dq, F32 dkv, CF32 do_, CStored q, CStored kv, CStored o, CF32 lse, CI32 q_begin,
                             CI32 kv_begin, CI32 seen, const Heads& heads);

// Generation: the keys of a segment stand in pages. The segment's queries are rows [query_begin, query_begin +
// query_count) of q, whose rows begin with H*K queries; their own keys are already the last query_count of key_count
// rows, or `seen` says how many keys each query sees. With pages of bf16 the keys and values are what was rounded,
// widened; all else stays fp32.
struct CachedSegment {
  int64_t query_begin, query_count;
  const int32_t* page;  // (pages_for(key_count)) numbers of the pages, in the order of their rows
  int64_t key_count;
  const int32_t* seen = nullptr;  // (query_count) ascending, or null
};
void attention_cached(F32 o, CF32 q, std::span<const CachedSegment> segments, const KvPages& pages, const Heads& heads);

// Multiply-adds that the kernels execute for a segment of n rows, all heads: the (query, key) pairs of every product
// that the loops visit. That is the causal half and, along the diagonal, the masked pairs of partly visible steps of
// kColumnStep queries or kRowGroup rows (attention_tile.h). Lanes that pad a vector are not counted.
int64_t attention_forward_multiply_adds(int64_t n, const Heads& heads);
int64_t attention_backward_multiply_adds(int64_t n, const Heads& heads);
// The same for attention_cached: `queries` rows at the end of `keys` keys.
int64_t attention_cached_multiply_adds(int64_t queries, int64_t keys, const Heads& heads);
// The same for queries of one segment that see so many keys each.
int64_t attention_over_forward_multiply_adds(std::span<const int32_t> seen, const Heads& heads);
int64_t attention_over_backward_multiply_adds(std::span<const int32_t> seen, const Heads& heads);

}  // namespace isobath
