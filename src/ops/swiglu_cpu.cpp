#include "base/simd.h"
#include "ops/swiglu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/swiglu_cpu.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/rows-inl.h"
#include "ops/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// Two streams that jump at every row defeat the hardware's prefetching beyond the L2 cache; asking for the next row
// here gains up to half. A hint may point past the end.
template <class T>
HWY_INLINE void prefetch_next_row(const T* u, const T* v, int64_t F, int64_t i) {
  hwy::Prefetch(u + 2 * F + i);
  hwy::Prefetch(v + 2 * F + i);
}

HWY_INLINE Vec swiglu(Vec gate, Vec up) { return hn::Mul(hn::Mul(gate, sigmoid(gate).value), up); }

// h of a row that stays where it is. A product with 1 is exact: without weights the bits are those of no product.
HWY_INLINE void forward_row(float* h, const float* u, int64_t F, Vec w) {
  for_vectors(F, [&](auto at, int64_t i) HWY_ATTR {
    prefetch_next_row(u, u + F, F, i);
    at.store(hn::Mul(w, swiglu(at.load(u + i), at.load(u + F + i))), h + i);
  });
}

template <class T>
HWY_INLINE void forward_row(float* h, T* kept, const float* u, int64_t F, Vec w) {
  for_vectors(F, [&](auto at, int64_t i) HWY_ATTR {
    prefetch_next_row(u, u + F, F, i);
    const Vec gate = keep(at, at.load(u + i), kept + i), up = keep(at, at.load(u + F + i), kept + F + i);
    at.store(hn::Mul(w, swiglu(gate, up)), h + i);
  });
}

void swiglu_forward(F32 h, Stored kept, CF32 uv, CF32 w) {
  const int64_t F = h.cols();
  const bool in_place = static_cast<const void*>(kept.data) == uv.data;
  with_format(kept, [&](auto rows) {
    parallel_for(h.rows(), row_grain(F), [&](int64_t s) HWY_ATTR {
      const Vec scale = hn::Set(Tag(), w.empty() ? 1 : w[s]);
      in_place ? forward_row(h.row(s), uv.row(s), F, scale) : forward_row(h.row(s), rows.row(s), uv.row(s), F, scale);
    });
  });
}

template <class T>
void backward_rows(F32 duv, F32 dh_to_h, View<const T> uv) {
  const int64_t S = dh_to_h.rows(), F = dh_to_h.cols();
  parallel_for(S, row_grain(F), [&](int64_t s) HWY_ATTR {
    const T *u = uv.row(s), *v = u + F;
    float *du = duv.row(s), *dv = du + F, *dh = dh_to_h.row(s);
    for_vectors(F, [&](auto at, int64_t i) HWY_ATTR {
      prefetch_next_row(u, v, F, i);
      const Vec gate = at.load(u + i), up = at.load(v + i), d = at.load(dh + i);
      const Sigmoid sg = sigmoid(gate);
      const Vec silu = hn::Mul(gate, sg.value);
      at.store(hn::Mul(hn::Mul(d, up), hn::MulAdd(silu, sg.complement, sg.value)), du + i);
      at.store(hn::Mul(d, silu), dv + i);
      at.store(hn::Mul(silu, up), dh + i);
    });
  });
}

// The same with a weight: dw of the dh that came in, and everything else of w * dh.
template <class T>
void weighted_backward_rows(F32 duv, F32 dh_to_h, View<const T> uv, const RowWeights& weights) {
  const int64_t S = dh_to_h.rows(), F = dh_to_h.cols();
  parallel_for(S, row_grain(F), [&](int64_t s) HWY_ATTR {
    const T *u = uv.row(s), *v = u + F;
    float *du = duv.row(s), *dv = du + F, *dh = dh_to_h.row(s);
    const Vec w = hn::Set(Tag(), weights.w[s]);
    weights.dw[s] = sum_vectors(F, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      prefetch_next_row(u, v, F, i);
      const Vec gate = at.load(u + i), up = at.load(v + i), of_h = at.load(dh + i), d = hn::Mul(w, of_h);
      const Sigmoid sg = sigmoid(gate);
      const Vec silu = hn::Mul(gate, sg.value), h = hn::Mul(silu, up);
      at.store(hn::Mul(hn::Mul(d, up), hn::MulAdd(silu, sg.complement, sg.value)), du + i);
      at.store(hn::Mul(d, silu), dv + i);
      at.store(hn::Mul(w, h), dh + i);
      return hn::MulAdd(of_h, h, sum);
    });
  });
}

void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv, const RowWeights& weights) {
  with_format(uv, [&](auto rows) {
    weights.w.empty() ? backward_rows(duv, dh_to_h, rows) : weighted_backward_rows(duv, dh_to_h, rows, weights);
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(swiglu_forward);
HWY_EXPORT(swiglu_backward);

namespace cpu {

void swiglu_forward(F32 h, Stored kept, CF32 uv, CF32 w) { HWY_DYNAMIC_DISPATCH(swiglu_forward)(h, kept, uv, w); }
void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv, const RowWeights& weights) {
  HWY_DYNAMIC_DISPATCH(swiglu_backward)(duv, dh_to_h, uv, weights);
}

}  // namespace cpu
}  // namespace isobath
#endif
