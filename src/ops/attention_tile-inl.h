// The SIMD parts that forward and backward share: products of small blocks, 2^x, packing. Compiled once per target.
#if defined(ISOBATH_OPS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOBATH_OPS_ATTENTION_TILE_INL_H_
#undef ISOBATH_OPS_ATTENTION_TILE_INL_H_
#else
#define ISOBATH_OPS_ATTENTION_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/attention_tile.h"
#include "ops/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using isobath::HWY_NAMESPACE::load_stored;
using isobath::HWY_NAMESPACE::store_stored;

// Full vectors never exceed kColumnStep lanes, so that columns are skipped alike on every target. Tiles of a few
// queries use short ones: a lane's arithmetic does not depend on the width of its vector.
using Full = hn::CappedTag<float, size_t(kColumnStep)>;
using Short = hn::CappedTag<float, 4>;

// Vectors of a product's row that are in registers at once: as many as the register file holds for kRowGroup rows.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
inline constexpr int kPanelVectors = 4;
#else
inline constexpr int kPanelVectors = 2;
#endif

// 2^x for x <= 64, to 2 ulp; 0 below 2^-126; exactly 1 at 0. The polynomial is the minimax of relative error on
// [-1/2, 1/2] with its constant held at 1. Products meet sums in explicit fused operations only, so that no compiler
// can round them differently in another place.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp2(D d, V x) {
  const V magic = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const V rounded = hn::Add(x, magic);
  const V f = hn::Sub(x, hn::Sub(rounded, magic));
  V p = hn::Set(d, 0x1.5bba14p-10f);
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.3cea88p-7f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.c6b752p-5f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.ebf9bcp-3f));
  p = hn::MulAdd(p, f, hn::Set(d, 0x1.62e42ap-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const hn::RebindToSigned<D> di;
  const auto bits = hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, rounded)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::BitCast(d, bits));
}

// Columns of scores whose queries stay in the first cache while the keys of a block pass.
inline constexpr int64_t kPanelColumns = 64;

// A product of blocks, C = A B or C = scale C + A B:
//   c[r,n] = (scale ? scale[r] * c[r,n] : 0) + sum_k a[r,k] b[k,n]
// a is read one number at a time through any two strides; rows of b and c are contiguous and padded to whole vectors.
// Each element is one chain of fused multiply-adds in ascending k: it does not depend on what else is computed.
struct Product {
  float* c;
  int64_t c_stride;
  const float* scale;
  const float* a;
  int64_t a_row, a_depth;
  const float* b;
  int64_t b_stride;
  int64_t depth;
};

template <int R, int V, class D>
HWY_INLINE void Panel(D d, const Product& p) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<D> sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; r++) {
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) {
      sum[r][v] = hn::Zero(d);
      if (p.scale != nullptr)
        sum[r][v] = hn::Mul(hn::Set(d, p.scale[r]), hn::Load(d, p.c + r * p.c_stride + v * lanes));
    }
  }
  const float* a = p.a;
  const float* b = p.b;
  for (int64_t k = 0; k < p.depth; k++, a += p.a_depth, b += p.b_stride) {
    hn::Vec<D> row[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) row[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
      const hn::Vec<D> x = hn::Set(d, a[r * p.a_row]);
#pragma GCC unroll 4
      for (int v = 0; v < V; v++) sum[r][v] = hn::MulAdd(x, row[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r++)
#pragma GCC unroll 4
    for (int v = 0; v < V; v++) hn::Store(sum[r][v], d, p.c + r * p.c_stride + v * lanes);
}

template <int V, class D>
HWY_NOINLINE void PanelRows(D d, const Product& p, int64_t rows) {
  static_assert(kRowGroup == 6);
  switch (rows) {
    case 6:
      return Panel<6, V>(d, p);
    case 5:
      return Panel<5, V>(d, p);
    case 4:
      return Panel<4, V>(d, p);
    case 3:
      return Panel<3, V>(d, p);
    case 2:
      return Panel<2, V>(d, p);
    default:
      return Panel<1, V>(d, p);
  }
}

// Vectors of the next panel when `columns` are left.
template <class D>
HWY_INLINE int64_t PanelWidth(D d, int64_t columns) {
  const int64_t vectors = (columns + int64_t(hn::Lanes(d)) - 1) / int64_t(hn::Lanes(d));
  return vectors >= kPanelVectors ? kPanelVectors : vectors >= 2 ? 2 : 1;
}

template <class D>
HWY_INLINE void RunPanel(D d, const Product& p, int64_t rows, int64_t vectors) {
  if constexpr (kPanelVectors == 4) {
    if (vectors == 4) return PanelRows<4>(d, p, rows);
  }
  if (vectors == 2) return PanelRows<2>(d, p, rows);
  PanelRows<1>(d, p, rows);
}

// scores[j,u] = sum_d x[j,d] y[d,u] for the keys and queries of a block that see each other (and, in whole steps of
// columns, a few that do not). Serves K Q^T and, backward, V dO^T. Returns the multiply-adds of actual queries.
template <class D>
int64_t ScoreProduct(D d, float* scores, int64_t stride, const float* x, int64_t x_stride, const float* y,
                     const QueryTile& tile, int64_t first_key, int64_t keys, int64_t K) {
  int64_t multiply_adds = 0;
  const int64_t lanes = int64_t(hn::Lanes(d)), step = std::min(kPanelColumns, round_up(tile.rows, lanes));
  for (int64_t panel = 0; panel < tile.rows; panel += step) {
    const int64_t end = std::min(panel + step, tile.rows);
    for (int64_t j = 0; j < keys; j += kRowGroup) {
      const int64_t group_rows = std::min(kRowGroup, keys - j);
      const int64_t begin = std::max(panel, tile.first_column(first_key + j));
      if (begin >= end) break;
      for (int64_t u = begin; u < end;) {
        const int64_t vectors = PanelWidth(d, end - u);
        RunPanel(d, {scores + j * stride + u, stride, nullptr, x + j * x_stride, x_stride, 1, y + u, stride, K},
                 group_rows, vectors);
        u += vectors * lanes;
      }
      multiply_adds += group_rows * (end - begin) * K;
    }
  }
  return multiply_adds;
}

// c[u,.] = scale[u] c[u,.] + sum_j p[j,u] v[j,.] over the keys of a block that row group's last query sees.
// Serves O = P V and, backward, dQ = dS K. A null scale starts c at zero.
template <class D>
int64_t MixProduct(D d, float* c, int64_t c_stride, const float* scale, const float* p, int64_t p_stride,
                   const float* v, int64_t v_stride, const QueryTile& tile, int64_t first_key, int64_t keys,
                   int64_t K) {
  int64_t multiply_adds = 0;
  for (int64_t n = 0; n < K;) {
    const int64_t vectors = PanelWidth(d, K - n);
    const int64_t width = vectors * int64_t(hn::Lanes(d));
    for (int64_t u = 0; u < tile.rows; u += kRowGroup) {
      const int64_t group_rows = std::min(kRowGroup, tile.rows - u);
      const int64_t depth = tile.visible_of_block(u + group_rows, first_key, keys);
      if (depth == 0) continue;
      RunPanel(
          d, {c + u * c_stride + n, c_stride, scale ? scale + u : nullptr, p + u, 1, p_stride, v + n, v_stride, depth},
          group_rows, vectors);
      multiply_adds += group_rows * depth * std::min(width, K - n);
    }
    n += width;
  }
  return multiply_adds;
}

// What follows copies up to kQueryTile rows of K numbers that lie anywhere, and widens them.

HWY_INLINE void CopyRow(float* to, const float* row, int64_t K) { std::memcpy(to, row, size_t(K) * sizeof(float)); }
HWY_INLINE void CopyRow(float* to, const Bf16* row, int64_t K) {
  const Full d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= K; k += lanes) hn::StoreU(load_stored(d, row + k), d, to + k);
  for (; k < K; k++) to[k] = to_f32(row[k]);
}

// The way back: K numbers that are written to memory, rounded if it is bf16.
HWY_INLINE void StoreRow(float* to, const float* row, int64_t K) { CopyRow(to, row, K); }
HWY_INLINE void StoreRow(Bf16* to, const float* row, int64_t K) {
  const Full d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t k = 0;
  for (; k + lanes <= K; k += lanes) store_stored(hn::LoadU(d, row + k), d, to + k);
  for (; k < K; k++) to[k] = to_stored<Bf16>(row[k]);
}

// to (rows, stride) row by row, columns [K, stride) zero.
template <class T>
HWY_INLINE void PackRows(float* to, int64_t stride, const T* const* rows, int64_t count, int64_t K) {
  for (int64_t r = 0; r < count; r++) {
    CopyRow(to + r * stride, rows[r], K);
    std::fill(to + r * stride + K, to + (r + 1) * stride, 0.0f);
  }
}

// to (K, stride) = rows^T * scale, columns [count, stride) zero.
template <class T>
HWY_INLINE void PackTransposed(float* to, int64_t stride, const T* const* rows, int64_t count, int64_t K, float scale) {
  for (int64_t k = 0; k < K; k++) std::fill(to + k * stride + count, to + (k + 1) * stride, 0.0f);
  int64_t r = 0;
#if HWY_TARGET != HWY_SCALAR  // squares of 4 x 4 in registers
  const hn::FixedTag<float, 4> d;
  const auto factor = hn::Set(d, scale);
  for (; r + 4 <= count; r += 4) {
    int64_t k = 0;
    for (; k + 4 <= K; k += 4) {
      const auto a = hn::Mul(load_stored(d, rows[r] + k), factor);
      const auto b = hn::Mul(load_stored(d, rows[r + 1] + k), factor);
      const auto c = hn::Mul(load_stored(d, rows[r + 2] + k), factor);
      const auto e = hn::Mul(load_stored(d, rows[r + 3] + k), factor);
      const auto ab_lower = hn::InterleaveLower(d, a, b), ab_upper = hn::InterleaveUpper(d, a, b);
      const auto ce_lower = hn::InterleaveLower(d, c, e), ce_upper = hn::InterleaveUpper(d, c, e);
      float* at = to + k * stride + r;
      hn::Store(hn::ConcatLowerLower(d, ce_lower, ab_lower), d, at);
      hn::Store(hn::ConcatUpperUpper(d, ce_lower, ab_lower), d, at + stride);
      hn::Store(hn::ConcatLowerLower(d, ce_upper, ab_upper), d, at + 2 * stride);
      hn::Store(hn::ConcatUpperUpper(d, ce_upper, ab_upper), d, at + 3 * stride);
    }
    for (; k < K; k++)
      for (int64_t i = r; i < r + 4; i++) to[k * stride + i] = to_f32(rows[i][k]) * scale;
  }
#endif
  for (; r < count; r++)
    for (int64_t k = 0; k < K; k++) to[k * stride + r] = to_f32(rows[r][k]) * scale;
}

}  // namespace isobath::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
