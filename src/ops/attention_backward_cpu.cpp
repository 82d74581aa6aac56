// Backward attention on the CPU. See attention_tile.h for how the work is cut.
//
//   P = softmax as in forward, from the kept lse       delta[u] = <dO[u], O[u]>
//   dV = P^T dO    dP = dO V^T    dS = P * (dP - delta) / sqrt(K)    dQ = dS K    dK = dS^T Q
// One task owns a segment's key/value head: it walks query tiles in order, some of them together, so that a block of
// keys and values, whose rows lie far apart, is fetched once for all of these; within them key blocks in order. So
// every sum has one order. dQ is complete after its tiles; dK and dV gather in dqkv. Source: Dao 2023,
// arXiv:2307.08691, algorithm 2.
#include "base/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/attention_backward_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <cmath>
#include <numbers>

#include "base/parallel.h"
#include "base/work.h"
#include "ops/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::cpu::HWY_NAMESPACE {
namespace {

// About 1 MiB on the stack at K = 256; small heads touch a part of it.
struct alignas(64) BackwardScratch {
  float q_t[kMaxHeadDim * kQueryTile], do_t[kMaxHeadDim * kQueryTile];   // (tiles, padded K, kQueryTile); q_t is scaled
  float q[kQueryTile * kMaxHeadDim], do_[kQueryTile * kMaxHeadDim];      // (tiles, kQueryTile, padded K)
  float dq[kQueryTile * kMaxHeadDim];                                    // (tiles, kQueryTile, padded K)
  float key[kKeyBlock * kMaxHeadDim], value[kKeyBlock * kMaxHeadDim];    // (keys, padded K)
  float dkey[kKeyBlock * kMaxHeadDim], dvalue[kKeyBlock * kMaxHeadDim];  // (keys, padded K)
  float p[kKeyBlock * kQueryTile], ds[kKeyBlock * kQueryTile];           // (keys, stride)
  float lse[kMostTiles * kQueryTile], delta[kMostTiles * kQueryTile];    // (tiles, kQueryTile)
  float limit[kQueryTile], one[kQueryTile];
};

// The part of the scratch that one tile has for itself.
struct TileScratch {
  QueryTile tile;
  int64_t stride;  // of q_t, do_t, p and ds
  float *q_t, *do_t, *q, *do_, *dq, *lse, *delta;
};
TileScratch tile_scratch(BackwardScratch& s, const QueryTile& tile, int64_t index, int64_t padded) {
  const int64_t at = index * kQueryTile * padded, row = index * kQueryTile;
  return {tile,         round_up(tile.rows, kColumnStep),
          s.q_t + at,   s.do_t + at,
          s.q + at,     s.do_ + at,
          s.dq + at,    s.lse + row,
          s.delta + row};
}

template <class T>
float Dot(const float* a, const T* b, int64_t n) {
  const Full d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto sum = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) sum = hn::MulAdd(hn::LoadU(d, a + i), load_stored(d, b + i), sum);
  const hn::CappedTag<float, 1> one;
  auto total = hn::Set(one, hn::GetLane(hn::SumOfLanes(d, sum)));
  for (; i < n; i++) total = hn::MulAdd(hn::LoadU(one, a + i), load_stored(one, b + i), total);
  return hn::GetLane(total);
}

void AddRow(float* to, const float* row, int64_t n) {
  const Full d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, row + i)), d, to + i);
  for (; i < n; i++) to[i] += row[i];
}

// p becomes P, ds (which holds dP) becomes dS; both 0 where the key is not visible.
void SoftmaxGradient(BackwardScratch& s, const TileScratch& t, int64_t first_key, int64_t keys, float score_scale) {
  const Full d;
  const QueryTile& tile = t.tile;
  const int64_t stride = t.stride;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto scale = hn::Set(d, score_scale);
  for (int64_t u = 0; u < tile.rows; u += lanes) {
    const int64_t all = tile.visible_of_block(u + 1, first_key, keys);
    const int64_t any = tile.visible_of_block(std::min(u + lanes, tile.rows), first_key, keys);
    const auto lse = hn::Load(d, t.lse + u), delta = hn::Load(d, t.delta + u), limit = hn::Load(d, s.limit + u);
    for (int64_t j = 0; j < any; j++) {
      float *p = s.p + j * stride + u, *ds = s.ds + j * stride + u;
      auto prob = Exp2(d, hn::Sub(hn::Load(d, p), lse));
      if (j >= all) prob = hn::IfThenElseZero(hn::Lt(hn::Set(d, float(j)), limit), prob);
      hn::Store(prob, d, p);
      hn::Store(hn::Mul(prob, hn::MulSub(hn::Load(d, ds), scale, delta)), d, ds);
    }
    for (int64_t j = any; j < keys; j++) {
      hn::Store(hn::Zero(d), d, s.p + j * stride + u);
      hn::Store(hn::Zero(d), d, s.ds + j * stride + u);
    }
  }
}

// to[j,.] += sum_u p[j,u] x[u,.]. Serves dV = P^T dO and dK = dS^T Q.
int64_t AddKeyGradient(float* to, const float* one, const float* p, const float* x, int64_t padded,
                       const TileScratch& t, int64_t first_key, int64_t keys, int64_t K) {
  const Full d;
  const QueryTile& tile = t.tile;
  int64_t multiply_adds = 0;
  for (int64_t n = 0; n < K;) {
    const int64_t vectors = PanelWidth(d, K - n), width = vectors * int64_t(hn::Lanes(d));
    for (int64_t j = 0; j < keys; j += kRowGroup) {
      const int64_t group_rows = std::min(kRowGroup, keys - j), begin = tile.first_column(first_key + j);
      RunPanel(d,
               {to + j * padded + n, padded, one, p + j * t.stride + begin, t.stride, 1, x + begin * padded + n, padded,
                tile.rows - begin},
               group_rows, vectors);
      multiply_adds += group_rows * (tile.rows - begin) * std::min(width, K - n);
    }
    n += width;
  }
  return multiply_adds;
}

template <class T>
void LoadTile(const BackwardSegment<T>& in, const TileScratch& t, int64_t padded, float score_scale) {
  const QueryTile& tile = t.tile;
  const int64_t stride = t.stride;
  const T* q_rows[kQueryTile];
  const float* do_rows[kQueryTile];
  for (int64_t r = 0; r < tile.rows; r++) {
    const int64_t row = (tile.first + r) / in.group, head = (tile.first + r) % in.group;
    q_rows[r] = in.q + row * in.q_stride + head * in.K;
    do_rows[r] = in.do_ + row * in.o_stride + head * in.K;
    t.lse[r] = in.lse[row * in.lse_stride + head] * std::numbers::log2e_v<float>;
    t.delta[r] = Dot(do_rows[r], in.o + row * in.o_stride + head * in.K, in.K) * score_scale;
  }
  std::fill(t.lse + tile.rows, t.lse + stride, 0.0f);
  std::fill(t.delta + tile.rows, t.delta + stride, 0.0f);
  PackTransposed(t.q_t, stride, q_rows, tile.rows, in.K, float(std::numbers::log2e / std::sqrt(double(in.K))));
  PackTransposed(t.do_t, stride, do_rows, tile.rows, in.K, 1);
  PackRows(t.q, padded, q_rows, tile.rows, in.K);
  PackRows(t.do_, padded, do_rows, tile.rows, in.K);
}

// One tile over one block of keys, which is packed.
int64_t RunBlock(BackwardScratch& s, const TileScratch& t, int64_t first_key, int64_t K, int64_t padded,
                 float score_scale) {
  const Full d;
  const QueryTile& tile = t.tile;
  const int64_t keys = std::min(kKeyBlock, tile.keys() - first_key);
  for (int64_t r = 0; r < t.stride; r++) s.limit[r] = float(tile.visible(std::min(r, tile.rows - 1)) - first_key);
  int64_t multiply_adds = ScoreProduct(d, s.p, t.stride, s.key, padded, t.q_t, tile, first_key, keys, K);
  multiply_adds += ScoreProduct(d, s.ds, t.stride, s.value, padded, t.do_t, tile, first_key, keys, K);
  SoftmaxGradient(s, t, first_key, keys, score_scale);
  multiply_adds += AddKeyGradient(s.dvalue, s.one, s.p, t.do_, padded, t, first_key, keys, K);
  multiply_adds += AddKeyGradient(s.dkey, s.one, s.ds, t.q, padded, t, first_key, keys, K);
  multiply_adds += MixProduct(d, t.dq, padded, first_key == 0 ? nullptr : s.one, s.ds, t.stride, s.key, padded, tile,
                              first_key, keys, K);
  return multiply_adds;
}

// The tiles from query `first` on that walk the keys together.
template <class T>
int64_t RunTiles(const BackwardSegment<T>& in, BackwardScratch& s, int64_t first) {
  const int64_t K = in.K, padded = round_up(K, kColumnStep), queries = in.rows * in.group;
  const float score_scale = float(1 / std::sqrt(double(K)));
  TileScratch tiles[kMostTiles];
  int64_t count = 0, multiply_adds = 0;
  for (; count < tiles_together(padded) && first < queries; count++, first += kQueryTile) {
    const QueryTile tile{first, std::min(kQueryTile, queries - first), in.group, 0, in.seen};
    tiles[count] = tile_scratch(s, tile, count, padded);
    LoadTile(in, tiles[count], padded, score_scale);
  }
  const int64_t all_keys = tiles[count - 1].tile.keys();
  for (int64_t first_key = 0; first_key < all_keys; first_key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, all_keys - first_key), at = first_key * in.kv_stride;
    const T *key_rows[kKeyBlock], *value_rows[kKeyBlock];
    for (int64_t j = 0; j < keys; j++) {
      key_rows[j] = in.key + at + j * in.kv_stride;
      value_rows[j] = in.value + at + j * in.kv_stride;
    }
    PackRows(s.key, padded, key_rows, keys, K);
    PackRows(s.value, padded, value_rows, keys, K);
    std::fill_n(s.dkey, keys * padded, 0.0f);
    std::fill_n(s.dvalue, keys * padded, 0.0f);
    for (int64_t t = 0; t < count; t++)
      if (tiles[t].tile.keys() > first_key) multiply_adds += RunBlock(s, tiles[t], first_key, K, padded, score_scale);
    for (int64_t j = 0; j < keys; j++) {
      AddRow(in.dkey + at + j * in.kv_stride, s.dkey + j * padded, K);
      AddRow(in.dvalue + at + j * in.kv_stride, s.dvalue + j * padded, K);
    }
  }
  for (int64_t t = 0; t < count; t++)
    for (int64_t r = 0; r < tiles[t].tile.rows; r++) {
      const int64_t query = tiles[t].tile.first + r;
      std::memcpy(in.dq + query / in.group * in.q_stride + query % in.group * K, tiles[t].dq + r * padded,
                  size_t(K) * sizeof(float));
    }
  return multiply_adds;
}

template <class T>
void BackwardHead(const BackwardSegment<T>& in) {
  BackwardScratch s;
  std::fill_n(s.one, kQueryTile, 1.0f);
  for (int64_t row = 0; row < in.key_rows; row++) {
    std::fill_n(in.dkey + row * in.kv_stride, in.K, 0.0f);
    std::fill_n(in.dvalue + row * in.kv_stride, in.K, 0.0f);
  }
  int64_t multiply_adds = 0;
  const int64_t step = tiles_together(round_up(in.K, kColumnStep)) * kQueryTile;
  for (int64_t first = 0; first < in.rows * in.group; first += step) multiply_adds += RunTiles(in, s, first);
  count_multiply_adds(multiply_adds);
}
void BackwardHeadF32(const BackwardSegment<float>& in) { BackwardHead(in); }
void BackwardHeadBf16(const BackwardSegment<Bf16>& in) { BackwardHead(in); }

}  // namespace
}  // namespace isobath::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::cpu {

HWY_EXPORT(BackwardHeadF32);
HWY_EXPORT(BackwardHeadBf16);
void backward_head(const BackwardSegment<float>& in) { HWY_DYNAMIC_DISPATCH(BackwardHeadF32)(in); }
void backward_head(const BackwardSegment<Bf16>& in) { HWY_DYNAMIC_DISPATCH(BackwardHeadBf16)(in); }

// dq as the rows of lists.q; dkey and dvalue as lists.key and lists.value.
template <class T>
void backward_lists(F32 dq, float* dkey, float* dvalue, CF32 do_, const AttentionLists<T>& lists, View<const T> o,
                    CF32 lse, const Heads& heads) {
  const int64_t H = heads.H, G = heads.G, K = heads.K, group = H / G;
  const int64_t segments = lists.q_begin.numel() - 1;
  parallel_tasks(segments * G, [&](int64_t task) {
    const int64_t i = task / G, g = task % G, row = lists.q_begin[i], key_row = lists.kv_begin[i];
    const int64_t q = g * group * K, at = key_row * lists.kv_stride + g * K;
    backward_head(BackwardSegment<T>{.q = lists.q.row(row) + q,
                                     .key = lists.key + at,
                                     .value = lists.value + at,
                                     .dq = dq.row(row) + q,
                                     .dkey = dkey + at,
                                     .dvalue = dvalue + at,
                                     .q_stride = lists.q.cols(),
                                     .kv_stride = lists.kv_stride,
                                     .o = o.row(row) + q,
                                     .do_ = do_.row(row) + q,
                                     .lse = lse.row(row) + g * group,
                                     .o_stride = heads.q_cols(),
                                     .lse_stride = H,
                                     .rows = lists.q_begin[i + 1] - row,
                                     .key_rows = lists.kv_begin[i + 1] - key_row,
                                     .group = group,
                                     .K = K,
                                     .seen = lists.seen_from(row)});
  });
}

void attention_backward(F32 dqkv, CF32 do_, CStored qkv, CStored o, CF32 lse, CI32 segment_begin, const Heads& heads) {
  float* dkey = dqkv.data + heads.q_cols();
  with_format(qkv, [&]<class T>(View<const T> rows) {
    backward_lists(dqkv, dkey, dkey + heads.kv_cols(), do_, lists_of(rows, segment_begin, heads), o.as<T>(), lse,
                   heads);
  });
}

void attention_over_backward(F32 dq, F32 dkv, CF32 do_, CStored q, CStored kv, CStored o, CF32 lse, CI32 q_begin,
                             CI32 kv_begin, CI32 seen, const Heads& heads) {
  with_format(q, [&]<class T>(View<const T> rows) {
    backward_lists(dq, dkv.data, dkv.data + heads.kv_cols(), do_,
                   lists_of(rows, kv.as<T>(), q_begin, kv_begin, seen, heads), o.as<T>(), lse, heads);
  });
}

}  // namespace isobath::cpu
#endif  // HWY_ONCE
