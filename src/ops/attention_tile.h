// What the CPU kernels of attention and the predictors of their multiply-adds agree on: how the work is cut.
//
// The query heads that share a key/value head share its tiles too. With group = H/G they are numbered
// u = row * group + head in group, and a tile is up to kQueryTile consecutive u of one segment. Query u sees the first
// visible(u) = offset + u / group + 1 keys; offset is the number of keys before the segment's first query (a cache). Or
// a table says how many keys each query row sees.
// Scores are kept as (key, query), lanes over queries, so the softmax of a query never leaves its lane.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention.h"

namespace isobath {

inline constexpr int64_t kQueryTile = 128;  // queries that share one pass over the keys
inline constexpr int64_t kRowGroup = 6;     // rows of a product that are in registers at once
inline constexpr int64_t kColumnStep = 16;  // masked columns of scores are skipped in steps of this many queries

// Tiles of a head that walk the keys together: as many as hold kMaxHeadDim * kQueryTile numbers, so that they stay in
// the second cache whatever the size of a head.
inline constexpr int64_t kMostTiles = 4;
inline int64_t tiles_together(int64_t padded_head_dim) { return std::min(kMostTiles, kMaxHeadDim / padded_head_dim); }

inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

struct QueryTile {
  int64_t first, rows;  // queries [first, first + rows) of the segment
  int64_t group, offset;
  const int32_t* seen = nullptr;  // of the segment's query rows, ascending, or null

  int64_t visible(int64_t row) const {
    const int64_t query = (first + row) / group;
    return seen == nullptr ? offset + query + 1 : seen[query];
  }
  int64_t keys() const { return visible(rows - 1); }
  // The first column of scores to compute for `key` and those after it.
  int64_t first_column(int64_t key) const {
    const int64_t row = std::max<int64_t>(0, first_query(key) * group - first);
    return row / kColumnStep * kColumnStep;
  }
  // How many of the `keys` keys from `first_key` on the `count` rows before `row_end` use.
  int64_t visible_of_block(int64_t row_end, int64_t first_key, int64_t keys) const {
    return std::clamp<int64_t>(visible(row_end - 1) - first_key, 0, keys);
  }

 private:
  // The first query row, among the tile's, that sees `key`.
  int64_t first_query(int64_t key) const {
    if (seen == nullptr) return key - offset;
    return std::upper_bound(seen + first / group, seen + (first + rows - 1) / group + 1, int32_t(key)) - seen;
  }
};

// Rows of keys or values of one head, `stride` numbers apart; the numbers of a row `step` apart.
template <class T>
struct KvRows {
  const T* data;
  int64_t stride, step = 1;
};

// Where the keys and values of a segment stand: row j of key/value head g, counted from the first head of a task.
// In rows of a list: all at one distance.
template <class T>
struct ListKv {
  using Item = T;
  const T *key, *value;
  int64_t stride, K;
  KvRows<T> keys(int64_t j, int64_t g) const { return {key + j * stride + g * K, stride}; }
  KvRows<T> values(int64_t j, int64_t g) const { return {value + j * stride + g * K, stride}; }
};
// In pages: at one distance within a page, keys number by number.
template <class T>
struct PagedKv {
  using Item = T;
  const KvPages& pages;
  const int32_t* page;
  int64_t first_head;
  KvRows<T> keys(int64_t j, int64_t g) const {
    return {pages.keys<const T>(page[j / kPageRows], first_head + g) + j % kPageRows, 1, kPageRows};
  }
  KvRows<T> values(int64_t j, int64_t g) const {
    return {pages.values<const T>(page[j / kPageRows], first_head + g) + j % kPageRows * pages.K, pages.K};
  }
};

// Everything a kernel needs to run the tiles of one segment and of `kv_heads` key/value heads side by side. The rows of
// a pointer are its stride apart; it stands at the segment's first row and the first of these heads. T: float or Bf16.
template <class T, class Kv>
struct ForwardSegment {
  const T* q;
  int64_t q_stride;
  Kv kv;
  T* o;
  float* lse;  // null if it is not wanted
  int64_t o_stride, lse_stride;
  int64_t kv_heads, group, K;
};

namespace cpu {
// A tile of at most kRowGroup queries over keys in pages, heads of whole kColumnStep numbers: what decoding runs. The
// same bits and multiply-adds as the tile that takes any number of them.
void few_queries(const ForwardSegment<float, PagedKv<float>>& in, const QueryTile& tile);
void few_queries(const ForwardSegment<float, PagedKv<Bf16>>& in, const QueryTile& tile);
}  // namespace cpu

// The same for one key/value head, backward.
template <class T>
struct BackwardSegment {
  const T *q, *key, *value;
  float *dq, *dkey, *dvalue;
  int64_t q_stride, kv_stride;
  const T* o;
  const float *do_, *lse;
  int64_t o_stride, lse_stride;
  int64_t rows, key_rows, group, K;
  const int32_t* seen;  // as QueryTile's
};

// Queries over keys, both in lists: what attention_forward finds in one array, and attention_over_forward in two.
template <class T>
struct AttentionLists {
  View<const T> q;       // rows begin with the queries
  const T *key, *value;  // of the first key row and head
  int64_t kv_stride;
  CI32 q_begin, kv_begin;
  CI32 seen;  // empty: a query sees the keys up to its own row
  const int32_t* seen_from(int64_t row) const { return seen.empty() ? nullptr : seen.data + row; }
};
template <class T>
AttentionLists<T> lists_of(View<const T> qkv, CI32 segment_begin, const Heads& heads) {
  const T* key = qkv.data + heads.q_cols();
  return {qkv, key, key + heads.kv_cols(), heads.qkv_cols(), segment_begin, segment_begin, {}};
}
template <class T>
AttentionLists<T> lists_of(View<const T> q, View<const T> kv, CI32 q_begin, CI32 kv_begin, CI32 seen,
                           const Heads& heads) {
  return {q, kv.data, kv.data + heads.kv_cols(), 2 * heads.kv_cols(), q_begin, kv_begin, seen};
}

}  // namespace isobath
