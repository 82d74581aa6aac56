// Forward attention on the CPU. See attention_tile.h for how the work is cut.
#include "base/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "base/parallel.h"
#include "base/work.h"
#include "ops/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::cpu::HWY_NAMESPACE {
namespace {

// The state of the tiles of a task, about 400 KiB at K = 256, on the stack; small heads touch a part of it. Parts of
// the arrays belong to the tiles that walk the keys together, or, with few queries, to heads that do.
struct alignas(64) ForwardScratch {
  float q[kMaxHeadDim * kQueryTile];  // (parts, K, stride) queries, transposed and scaled
  float p[kKeyBlock * kQueryTile];    // (keys, stride) scores, then exponentials; of few queries (heads, keys, stride)
  float o[kQueryTile * kMaxHeadDim];  // (parts, stride, padded K)
  float key[kKeyBlock * kMaxHeadDim], value[kKeyBlock * kMaxHeadDim];  // (keys, padded K)
  float max[kMostTiles * kQueryTile];                                  // (parts, stride) running maximum of the scores
  float sum[kMostTiles * kQueryTile];                                  // (parts, stride) sum of 2^(score - max)
  float correction[kQueryTile];                                        // 2^(old max - new max)
  float limit[kQueryTile];  // (stride) keys of the block that a query sees, may be negative
  float one[kQueryTile];
  ForwardScratch() {
    std::fill_n(max, kMostTiles * kQueryTile, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, kMostTiles * kQueryTile, 0.0f);
    std::fill_n(one, kQueryTile, 1.0f);
  }
  void set_limits(const QueryTile& tile, int64_t stride, int64_t first_key) {
    for (int64_t r = 0; r < stride; r++) limit[r] = float(tile.visible(std::min(r, tile.rows - 1)) - first_key);
  }
};

// What the softmax of the queries of one part works on.
struct Softmax {
  float *p, *max, *sum, *correction;
  const float* limit;
  int64_t stride;  // of p
};

// One block of the online softmax, in place: p becomes 2^(p - max), 0 where the key is not visible.
template <class D>
void SoftmaxBlock(D d, const Softmax& s, const QueryTile& tile, int64_t first_key, int64_t keys) {
  const int64_t lanes = int64_t(hn::Lanes(d)), stride = s.stride;
  const auto minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int64_t u = 0; u < tile.rows; u += lanes) {
    const int64_t all = tile.visible_of_block(u + 1, first_key, keys);
    const int64_t any = tile.visible_of_block(std::min(u + lanes, tile.rows), first_key, keys);
    float* p = s.p + u;
    const auto limit = hn::Load(d, s.limit + u);
    auto block_max = minus_infinity;
    for (int64_t j = 0; j < all; j++) block_max = hn::Max(block_max, hn::Load(d, p + j * stride));
    for (int64_t j = all; j < any; j++) {
      const auto seen = hn::Lt(hn::Set(d, float(j)), limit);
      const auto score = hn::IfThenElse(seen, hn::Load(d, p + j * stride), minus_infinity);
      hn::Store(score, d, p + j * stride);
      block_max = hn::Max(block_max, score);
    }
    const auto old_max = hn::Load(d, s.max + u);
    const auto max = hn::Max(old_max, block_max);
    auto sum = hn::Zero(d);
    for (int64_t j = 0; j < any; j++) {
      const auto e = Exp2(d, hn::Sub(hn::Load(d, p + j * stride), max));
      hn::Store(e, d, p + j * stride);
      sum = hn::Add(sum, e);
    }
    for (int64_t j = any; j < keys; j++) hn::Store(hn::Zero(d), d, p + j * stride);
    const auto correction = Exp2(d, hn::Sub(old_max, max));
    hn::Store(max, d, s.max + u);
    hn::Store(correction, d, s.correction + u);
    hn::Store(hn::MulAdd(hn::Load(d, s.sum + u), correction, sum), d, s.sum + u);
  }
}

// o = o / sum. Adding zero makes -0 into +0: the masked keys of a block, whose products are 0, may or may not have
// done so already, which depends on the tile. o, max and sum are the part's, its first query first.
template <class T, class Kv>
void FinishHead(const ForwardSegment<T, Kv>& in, const float* o, const float* max, const float* sum, int64_t head,
                int64_t padded, const QueryTile& tile) {
  const Full d;
  for (int64_t r = 0; r < tile.rows; r++) {
    const int64_t row = (tile.first + r) / in.group, h = head * in.group + (tile.first + r) % in.group;
    const auto scale = hn::Set(d, 1 / sum[r]);
    HWY_ALIGN float result[kMaxHeadDim];
    for (int64_t n = 0; n < in.K; n += int64_t(hn::Lanes(d)))
      hn::Store(hn::MulAdd(hn::Load(d, o + r * padded + n), scale, hn::Zero(d)), d, result + n);
    StoreRow(in.o + row * in.o_stride + h * in.K, result, in.K);
    if (in.lse != nullptr)
      in.lse[row * in.lse_stride + h] = float((double(max[r]) + std::log2(double(sum[r]))) * std::numbers::ln2);
  }
}

// Where a product reads `count` rows of keys or values, the first of which is at(0): in place, or in a copy, which pays
// when many queries use it and is needed where rows end within a vector, are not fp32 or lie in several pages.
template <class At>
KvRows<float> PrepareRows(float* to, At at, int64_t count, int64_t K, bool copy) {
  const auto first = at(0);
  if constexpr (std::is_same_v<decltype(first), const KvRows<float>>) {
    if (!copy && first.step == 1) return first;
  }
  decltype(first.data) rows[kKeyBlock];
  for (int64_t j = 0; j < count; j++) rows[j] = at(j).data;
  const int64_t padded = round_up(K, kColumnStep);
  if (first.step == 1) {
    PackRows(to, padded, rows, count, K);
    return {to, padded};
  }
  for (int64_t j = 0; j < count; j++) {
    float* row = to + j * padded;
    for (int64_t k = 0; k < K; k++) row[k] = to_f32(rows[j][k * first.step]);
    std::fill(row + K, row + padded, 0.0f);
  }
  return {to, padded};
}

// Queries of one head, transposed and scaled.
template <class T, class Kv>
void PackQueries(float* to, int64_t stride, const ForwardSegment<T, Kv>& in, const QueryTile& tile, int64_t head) {
  const T* rows[kQueryTile];
  for (int64_t r = 0; r < tile.rows; r++)
    rows[r] = in.q + (tile.first + r) / in.group * in.q_stride + (head * in.group + (tile.first + r) % in.group) * in.K;
  PackTransposed(to, stride, rows, tile.rows, in.K, float(std::numbers::log2e / std::sqrt(double(in.K))));
}

// At most kColumnStep queries. Heads run side by side: they walk the keys a few whole rows at a time, in the order of
// memory, which is what decoding waits for.
template <class D, class T, class Kv>
void RunFew(D d, const ForwardSegment<T, Kv>& in, const QueryTile& tile) {
  const Full full;
  ForwardScratch s;
  const int64_t K = in.K, padded = round_up(K, kColumnStep), stride = kColumnStep;
  for (int64_t head = 0; head < in.kv_heads; head++) PackQueries(s.q + head * stride * K, stride, in, tile, head);
  const bool copy = K != padded;
  int64_t multiply_adds = 0;
  for (int64_t first_key = 0; first_key < tile.keys(); first_key += kKeyBlock) {
    const int64_t end_key = std::min(first_key + kKeyBlock, tile.keys());
    s.set_limits(tile, stride, first_key);
    for (int64_t j = first_key; j < end_key; j += kPageRows)  // in place: rows of one page
      for (int64_t head = 0; head < in.kv_heads; head++) {
        const int64_t keys = std::min(kPageRows, end_key - j), at = head * stride;
        const auto key_at = [&](int64_t i) { return in.kv.keys(j + i, head); };
        const KvRows<float> key = PrepareRows(s.key, key_at, keys, K, copy);
        multiply_adds += ScoreProduct(d, s.p + at * kKeyBlock + (j - first_key) * stride, stride, key.data, key.stride,
                                      s.q + at * K, tile, j, keys, K);
      }
    for (int64_t head = 0; head < in.kv_heads; head++) {
      const int64_t at = head * stride;
      SoftmaxBlock(d, {s.p + at * kKeyBlock, s.max + at, s.sum + at, s.correction + at, s.limit, stride}, tile,
                   first_key, end_key - first_key);
    }
    for (int64_t j = first_key; j < end_key; j += kPageRows)
      for (int64_t head = 0; head < in.kv_heads; head++) {
        const int64_t keys = std::min(kPageRows, end_key - j), at = head * stride;
        const auto value_at = [&](int64_t i) { return in.kv.values(j + i, head); };
        const KvRows<float> value = PrepareRows(s.value, value_at, keys, K, copy);
        const float* scale = j == 0 ? nullptr : j == first_key ? s.correction + at : s.one;
        multiply_adds +=
            MixProduct(full, s.o + at * padded, padded, scale, s.p + at * kKeyBlock + (j - first_key) * stride, stride,
                       value.data, value.stride, tile, j, keys, K);
      }
  }
  for (int64_t head = 0; head < in.kv_heads; head++) {
    const int64_t at = head * stride;
    FinishHead(in, s.o + at * padded, s.max + at, s.sum + at, head, padded, tile);
  }
  count_multiply_adds(multiply_adds);
}

// Consecutive tiles of one head. A block of keys and values, whose rows lie far apart, is fetched once for all of them.
template <class T, class Kv>
void RunTiles(const ForwardSegment<T, Kv>& in, std::span<const QueryTile> tiles) {
  const Full d;
  ForwardScratch s;
  const int64_t K = in.K, padded = round_up(K, kColumnStep);
  for (size_t t = 0; t < tiles.size(); t++)
    PackQueries(s.q + int64_t(t) * kQueryTile * padded, round_up(tiles[t].rows, kColumnStep), in, tiles[t], 0);
  int64_t multiply_adds = 0;
  const int64_t all_keys = tiles.back().keys();
  for (int64_t first_key = 0; first_key < all_keys; first_key += kKeyBlock) {
    const int64_t block = std::min(kKeyBlock, all_keys - first_key);
    const auto key_at = [&](int64_t i) { return in.kv.keys(first_key + i, 0); };
    const auto value_at = [&](int64_t i) { return in.kv.values(first_key + i, 0); };
    const KvRows<float> key = PrepareRows(s.key, key_at, block, K, true);
    const KvRows<float> value = PrepareRows(s.value, value_at, block, K, true);
    for (size_t t = 0; t < tiles.size(); t++) {
      const QueryTile& tile = tiles[t];
      const int64_t keys = std::min(block, tile.keys() - first_key), at = int64_t(t) * kQueryTile;
      if (keys <= 0) continue;
      const int64_t stride = round_up(tile.rows, kColumnStep);
      s.set_limits(tile, stride, first_key);
      multiply_adds += ScoreProduct(d, s.p, stride, key.data, key.stride, s.q + at * padded, tile, first_key, keys, K);
      SoftmaxBlock(d, {s.p, s.max + at, s.sum + at, s.correction, s.limit, stride}, tile, first_key, keys);
      multiply_adds += MixProduct(d, s.o + at * padded, padded, first_key == 0 ? nullptr : s.correction, s.p, stride,
                                  value.data, value.stride, tile, first_key, keys, K);
    }
  }
  for (size_t t = 0; t < tiles.size(); t++) {
    const int64_t at = int64_t(t) * kQueryTile;
    FinishHead(in, s.o + at * padded, s.max + at, s.sum + at, 0, padded, tiles[t]);
  }
  count_multiply_adds(multiply_adds);
}

template <class T, class Kv>
void ForwardTiles(const ForwardSegment<T, Kv>& in, std::span<const QueryTile> tiles) {
  if (tiles.size() > 1 || tiles[0].rows > kColumnStep) return RunTiles(in, tiles);
  if (tiles[0].rows <= int64_t(hn::Lanes(Short()))) return RunFew(Short(), in, tiles[0]);
  RunFew(Full(), in, tiles[0]);
}
using Tiles = std::span<const QueryTile>;
void ListTilesF32(const ForwardSegment<float, ListKv<float>>& in, Tiles tiles) { ForwardTiles(in, tiles); }
void ListTilesBf16(const ForwardSegment<Bf16, ListKv<Bf16>>& in, Tiles tiles) { ForwardTiles(in, tiles); }
void PagedTilesF32(const ForwardSegment<float, PagedKv<float>>& in, Tiles tiles) { ForwardTiles(in, tiles); }
void PagedTilesBf16(const ForwardSegment<float, PagedKv<Bf16>>& in, Tiles tiles) { ForwardTiles(in, tiles); }

}  // namespace
}  // namespace isobath::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::cpu {

HWY_EXPORT(ListTilesF32);
HWY_EXPORT(ListTilesBf16);
HWY_EXPORT(PagedTilesF32);
HWY_EXPORT(PagedTilesBf16);
void forward_tiles(const ForwardSegment<float, ListKv<float>>& in, std::span<const QueryTile> tiles) {
  HWY_DYNAMIC_DISPATCH(ListTilesF32)(in, tiles);
}
void forward_tiles(const ForwardSegment<Bf16, ListKv<Bf16>>& in, std::span<const QueryTile> tiles) {
  HWY_DYNAMIC_DISPATCH(ListTilesBf16)(in, tiles);
}
void forward_tiles(const ForwardSegment<float, PagedKv<float>>& in, std::span<const QueryTile> tiles) {
  HWY_DYNAMIC_DISPATCH(PagedTilesF32)(in, tiles);
}
void forward_tiles(const ForwardSegment<float, PagedKv<Bf16>>& in, std::span<const QueryTile> tiles) {
  HWY_DYNAMIC_DISPATCH(PagedTilesBf16)(in, tiles);
}

// Tiles that one task runs together: as many as fit, while there are tasks for all threads. Bits do not depend on it.
int64_t tiles_per_task(int64_t queries, int64_t tasks_per_tile, int64_t K) {
  const int64_t tiles = round_up(queries, kQueryTile) / kQueryTile, busy = 2 * thread_count();
  return std::clamp<int64_t>(tiles * tasks_per_tile / busy, 1, tiles_together(round_up(K, kColumnStep)));
}

// Tiles are counted from the first query of their segment. A slot of some tiles' queries of the whole list runs the
// tiles that begin in it, so that many short segments make few tasks and one long one makes many.
template <class T>
void forward_lists(View<T> o, F32 lse, const AttentionLists<T>& lists, const Heads& heads) {
  const int64_t H = heads.H, G = heads.G, K = heads.K;
  const CI32 begin = lists.q_begin;
  const int64_t segments = begin.numel() - 1, group = H / G;
  const int64_t slot_queries = kQueryTile * tiles_per_task(o.rows() * group, G, K);
  const int64_t slots = round_up(o.rows() * group, slot_queries) / slot_queries;
  parallel_tasks(slots * G, [&](int64_t task) {
    const int64_t slot = slots - 1 - task / G, g = task % G;  // late tiles see the most keys: they go first
    const int64_t slot_begin = slot * slot_queries, slot_end = slot_begin + slot_queries;
    const int32_t* end = begin.data + segments + 1;
    const int32_t* next = std::upper_bound(begin.data, end, int32_t(slot_begin / group));
    for (int64_t i = next - begin.data - 1; i < segments && begin[i] * group < slot_end; i++) {
      const int64_t row = begin[i], queries = (begin[i + 1] - row) * group;
      const int64_t skipped = std::max<int64_t>(0, slot_begin - row * group);
      QueryTile tiles[kMostTiles];
      size_t count = 0;
      for (int64_t first = round_up(skipped, kQueryTile); first < queries && row * group + first < slot_end;
           first += kQueryTile)
        tiles[count++] = {first, std::min(kQueryTile, queries - first), group, 0, lists.seen_from(row)};
      if (count == 0) continue;
      const int64_t at = lists.kv_begin[i] * lists.kv_stride + g * K;
      const ForwardSegment<T, ListKv<T>> in{.q = lists.q.row(row) + g * group * K,
                                            .q_stride = lists.q.cols(),
                                            .kv = {lists.key + at, lists.value + at, lists.kv_stride, K},
                                            .o = o.row(row) + g * group * K,
                                            .lse = lse.empty() ? nullptr : lse.row(row) + g * group,
                                            .o_stride = heads.q_cols(),
                                            .lse_stride = H,
                                            .kv_heads = 1,
                                            .group = group,
                                            .K = K};
      forward_tiles(in, {tiles, count});
    }
  });
}

void attention_forward(Stored o, F32 lse, CStored qkv, CI32 segment_begin, const Heads& heads) {
  with_format(qkv, [&]<class T>(View<const T> rows) {
    forward_lists(o.as<T>(), lse, lists_of(rows, segment_begin, heads), heads);
  });
}

void attention_over_forward(Stored o, F32 lse, CStored q, CStored kv, CI32 q_begin, CI32 kv_begin, CI32 seen,
                            const Heads& heads) {
  with_format(q, [&]<class T>(View<const T> rows) {
    forward_lists(o.as<T>(), lse, lists_of(rows, kv.as<T>(), q_begin, kv_begin, seen, heads), heads);
  });
}

// How many key/value heads of a segment one task takes. Bits do not depend on it, so it may follow the threads.
int64_t heads_per_task(int64_t segments, int64_t most_queries, int64_t G) {
  if (most_queries > kColumnStep) return 1;
  const int64_t fit = kQueryTile / kColumnStep, busy = std::max<int64_t>(1, segments * G / thread_count());
  const int64_t tasks = round_up(G, std::min(fit, busy)) / std::min(fit, busy);
  return round_up(G, tasks) / tasks;
}

template <class T>
void forward_pages(F32 o, CF32 q, std::span<const CachedSegment> segments, const KvPages& pages, const Heads& heads) {
  const int64_t G = heads.G, K = heads.K, group = heads.H / G;
  int64_t most_queries = 0;
  for (const CachedSegment& segment : segments) most_queries = std::max(most_queries, segment.query_count * group);
  const int64_t tiles = round_up(most_queries, kQueryTile) / kQueryTile;
  const int64_t together = heads_per_task(int64_t(segments.size()), most_queries, G);
  const int64_t parts = round_up(G, together) / together;
  parallel_tasks(int64_t(segments.size()) * tiles * parts, [&](int64_t task) {
    const CachedSegment& segment = segments[size_t(task / (tiles * parts))];
    const int64_t g = task % parts * together, first = task / parts % tiles * kQueryTile;
    const int64_t queries = segment.query_count * group, offset = segment.key_count - segment.query_count;
    if (first >= queries) return;
    const ForwardSegment<float, PagedKv<T>> in{.q = q.row(segment.query_begin) + g * group * K,
                                               .q_stride = q.cols(),
                                               .kv = {pages, segment.page, g},
                                               .o = o.row(segment.query_begin) + g * group * K,
                                               .lse = nullptr,
                                               .o_stride = heads.q_cols(),
                                               .lse_stride = 0,
                                               .kv_heads = std::min(together, G - g),
                                               .group = group,
                                               .K = K};
    const QueryTile tile{first, std::min(kQueryTile, queries - first), group, offset, segment.seen};
    tile.rows <= kRowGroup&& K % kColumnStep == 0 ? few_queries(in, tile) : forward_tiles(in, {&tile, 1});
  });
}

void attention_cached(F32 o, CF32 q, std::span<const CachedSegment> segments, const KvPages& pages,
                      const Heads& heads) {
  pages.storage == Storage::kF32 ? forward_pages<float>(o, q, segments, pages, heads)
                                 : forward_pages<Bf16>(o, q, segments, pages, heads);
}

}  // namespace isobath::cpu
#endif  // HWY_ONCE
