#include "ops/attention.h"

#include "base/error.h"
#include "base/work.h"
#include "ops/attention_tile.h"
#include "ops/device.h"

namespace isobath {
namespace cpu {
void attention_forward(Stored o, F32 lse, CStored qkv, CI32 segment_begin, const Heads& heads);
void attention_backward(F32 dqkv, CF32 do_, CStored qkv, CStored o, CF32 lse, CI32 segment_begin, const Heads& heads);
void attention_over_forward(Stored o, F32 lse, CStored q, CStored kv, CI32 q_begin, CI32 kv_begin, CI32 seen,
                            const Heads& heads);
void attention_over_backward(F32 dq, F32 dkv, CF32 do_, CStored q, CStored kv, CStored o, CF32 lse, CI32 q_begin,
                             CI32 kv_begin, CI32 seen, const Heads& heads);
void attention_cached(F32 o, CF32 q, std::span<const CachedSegment> segments, const KvPages& pages, const Heads& heads);
}  // namespace cpu

namespace {

void check_heads(const char* op, const Heads& heads) {
  require(heads.H > 0 && heads.G > 0 && heads.H % heads.G == 0,
          "{}: {} query heads and {} key/value heads; the second must divide the first", op, heads.H, heads.G);
  require(heads.K > 0 && heads.K <= kMaxHeadDim, "{}: head size is {}, expected 1 to {}", op, heads.K, kMaxHeadDim);
}

void check_shape(const char* op, const char* name, const Shape& found, const Shape& expected) {
  require(found == expected, "{}: {} is {}, expected {}", op, name, found, expected);
}

void check_begins(const char* op, const char* name, CI32 begin, int64_t rows) {
  const int64_t segments = begin.numel() - 1;
  require(segments >= 0 && begin[0] == 0 && begin[segments] == rows,
          "{}: {} {} must start at 0 and end at the list's {} rows", op, name, begin.shape, rows);
  for (int64_t i = 0; i < segments; i++)
    require(begin[i] <= begin[i + 1], "{}: segment {} of {} begins at row {} and ends at row {}", op, i, name, begin[i],
            begin[i + 1]);
}

void check_list(const char* op, CStored o, CStored qkv, CI32 segment_begin, const Heads& heads) {
  check_heads(op, heads);
  const int64_t S = qkv.rows();
  check_shape(op, "qkv", qkv.shape, {S, heads.qkv_cols()});
  check_shape(op, "o", o.shape, {S, heads.q_cols()});
  require(o.storage == qkv.storage, "{}: one of qkv and o is fp32 and one bf16; expected the same", op);
  check_begins(op, "segment_begin", segment_begin, S);
}

void check_lists(const char* op, CStored o, CStored q, CStored kv, CI32 q_begin, CI32 kv_begin, CI32 seen,
                 const Heads& heads) {
  check_heads(op, heads);
  check_shape(op, "q", q.shape, {o.rows(), heads.q_cols()});
  check_shape(op, "o", o.shape, q.shape);
  check_shape(op, "kv", kv.shape, {kv.rows(), 2 * heads.kv_cols()});
  check_shape(op, "seen", seen.shape, {q.rows()});
  check_shape(op, "kv_begin", kv_begin.shape, q_begin.shape);
  require(o.storage == q.storage && kv.storage == q.storage,
          "{}: q, kv and o are not all fp32 or all bf16; expected the same", op);
  check_begins(op, "q_begin", q_begin, q.rows());
  check_begins(op, "kv_begin", kv_begin, kv.rows());
  for (int64_t i = 0; i + 1 < q_begin.numel(); i++)
    for (int64_t s = q_begin[i]; s < q_begin[i + 1]; s++) {
      const int32_t least = s == q_begin[i] ? 1 : seen[s - 1], most = kv_begin[i + 1] - kv_begin[i];
      require(seen[s] >= least && seen[s] <= most, "{}: query {} sees {} keys, expected {} to {}", op, s, seen[s],
              least, most);
    }
}

// Multiply-adds of a segment of `queries` rows behind `offset` keys, per key/value head: of a product in (key, query)
// layout, as K Q^T is, and of one in (query, head dimension) layout, as P V is.
struct TileCost {
  int64_t score = 0, mix = 0;
};

TileCost tile_cost(int64_t rows, int64_t offset, const Heads& heads, const int32_t* seen = nullptr) {
  const int64_t group = heads.H / heads.G, queries = rows * group, K = heads.K;
  TileCost cost;
  for (int64_t first = 0; first < queries; first += kQueryTile) {
    const QueryTile tile{first, std::min(kQueryTile, queries - first), group, offset, seen};
    const int64_t dense_keys = tile.visible(0) / kKeyBlock * kKeyBlock;  // whole blocks that every query sees
    cost.score += tile.rows * dense_keys * K;
    cost.mix += tile.rows * dense_keys * K;
    for (int64_t key = dense_keys; key < tile.keys(); key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, tile.keys() - key);
      for (int64_t j = 0; j < keys; j += kRowGroup)
        cost.score += std::min(kRowGroup, keys - j) * (tile.rows - tile.first_column(key + j)) * K;
      for (int64_t u = 0; u < tile.rows; u += kRowGroup) {
        const int64_t group_rows = std::min(kRowGroup, tile.rows - u);
        cost.mix += group_rows * tile.visible_of_block(u + group_rows, key, keys) * K;
      }
    }
  }
  return {cost.score * heads.G, cost.mix * heads.G};
}

// The queries and their outputs, and the keys and values of each segment.
int64_t cached_bytes(CF32 q, std::span<const CachedSegment> segments, const KvPages& pages, const Heads& heads) {
  int64_t bytes = 2 * q.rows() * heads.q_cols() * int64_t(sizeof(float));
  for (const CachedSegment& s : segments) bytes += s.key_count * pages.row_bytes();
  return bytes;
}

}  // namespace

void attention_forward(Stored o, F32 lse, CStored qkv, CI32 segment_begin, const Heads& heads) {
  const Work work("attention_forward", {.bytes = bytes_of(o, lse, qkv, segment_begin), .product = true});
  check_list("attention_forward", o, qkv, segment_begin, heads);
  if (!lse.empty()) check_shape("attention_forward", "lse", lse.shape, {qkv.rows(), heads.H});
  if (qkv.device == Device::kCpu) return cpu::attention_forward(o, lse, qkv, segment_begin, heads);
  throw_no_device("attention_forward", qkv.device);
}

void attention_backward(F32 dqkv, CF32 do_, CStored qkv, CStored o, CF32 lse, CI32 segment_begin, const Heads& heads) {
  const Work work("attention_backward", {.bytes = bytes_of(dqkv, do_, qkv, o, lse, segment_begin), .product = true});
  check_list("attention_backward", o, qkv, segment_begin, heads);
  check_shape("attention_backward", "dqkv", dqkv.shape, qkv.shape);
  check_shape("attention_backward", "do_", do_.shape, o.shape);
  check_shape("attention_backward", "lse", lse.shape, {qkv.rows(), heads.H});
  if (qkv.device == Device::kCpu) return cpu::attention_backward(dqkv, do_, qkv, o, lse, segment_begin, heads);
  throw_no_device("attention_backward", qkv.device);
}

void attention_over_forward(Stored o, F32 lse, CStored q, CStored kv, CI32 q_begin, CI32 kv_begin, CI32 seen,
                            const Heads& heads) {
  const char* op = "attention_over_forward";
  const Work work(op, {.bytes = bytes_of(o, lse, q, kv, q_begin, kv_begin, seen), .product = true});
  check_lists(op, o, q, kv, q_begin, kv_begin, seen, heads);
  if (!lse.empty()) check_shape(op, "lse", lse.shape, {q.rows(), heads.H});
  if (q.device == Device::kCpu) return cpu::attention_over_forward(o, lse, q, kv, q_begin, kv_begin, seen, heads);
  throw_no_device(op, q.device);
}

void attention_over_backward(F32 dq, F32 dkv, CF32 do_, CStored q, CStored kv, CStored o, CF32 lse, CI32 q_begin,
                             CI32 kv_begin, CI32 seen, const Heads& heads) {
  const char* op = "attention_over_backward";
  const Work work(op, {.bytes = bytes_of(dq, dkv, do_, q, kv, o, lse, q_begin, kv_begin, seen), .product = true});
  check_lists(op, o, q, kv, q_begin, kv_begin, seen, heads);
  check_shape(op, "dq", dq.shape, q.shape);
  check_shape(op, "dkv", dkv.shape, kv.shape);
  check_shape(op, "do_", do_.shape, o.shape);
  check_shape(op, "lse", lse.shape, {q.rows(), heads.H});
  if (q.device == Device::kCpu)
    return cpu::attention_over_backward(dq, dkv, do_, q, kv, o, lse, q_begin, kv_begin, seen, heads);
  throw_no_device(op, q.device);
}

void attention_cached(F32 o, CF32 q, std::span<const CachedSegment> segments, const KvPages& pages,
                      const Heads& heads) {
  const Work work("attention_cached", {.bytes = cached_bytes(q, segments, pages, heads), .product = true});
  check_heads("attention_cached", heads);
  require(q.cols() >= heads.q_cols(), "attention_cached: rows of q have {} numbers, expected {} or more", q.cols(),
          heads.q_cols());
  check_shape("attention_cached", "o", o.shape, {q.rows(), heads.q_cols()});
  require(pages.G == heads.G && pages.K == heads.K, "attention_cached: pages of {} heads of size {}, expected {} of {}",
          pages.G, pages.K, heads.G, heads.K);
  for (const CachedSegment& s : segments) {
    require(s.query_begin >= 0 && s.query_count >= 0 && s.query_begin + s.query_count <= q.rows(),
            "attention_cached: queries [{}, {}) are outside the {} rows of q", s.query_begin,
            s.query_begin + s.query_count, q.rows());
    require(s.query_count <= s.key_count,
            "attention_cached: {} queries but {} keys; the queries' own keys must be in the cache", s.query_count,
            s.key_count);
  }
  if (q.device == Device::kCpu) return cpu::attention_cached(o, q, segments, pages, heads);
  throw_no_device("attention_cached", q.device);
}

int64_t attention_forward_multiply_adds(int64_t n, const Heads& heads) {
  return attention_cached_multiply_adds(n, n, heads);
}

int64_t attention_backward_multiply_adds(int64_t n, const Heads& heads) {
  const TileCost cost = tile_cost(n, 0, heads);
  return 4 * cost.score + cost.mix;  // K Q^T, V dO^T, dV, dK; dQ
}

int64_t attention_cached_multiply_adds(int64_t queries, int64_t keys, const Heads& heads) {
  const TileCost cost = tile_cost(queries, keys - queries, heads);
  return cost.score + cost.mix;
}

int64_t attention_over_forward_multiply_adds(std::span<const int32_t> seen, const Heads& heads) {
  const TileCost cost = tile_cost(int64_t(seen.size()), 0, heads, seen.data());
  return cost.score + cost.mix;
}

int64_t attention_over_backward_multiply_adds(std::span<const int32_t> seen, const Heads& heads) {
  const TileCost cost = tile_cost(int64_t(seen.size()), 0, heads, seen.data());
  return 4 * cost.score + cost.mix;
}

}  // namespace isobath
