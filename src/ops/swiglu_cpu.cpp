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
HWY_INLINE void prefetch_next_row(const float* u, const float* v, int64_t F, int64_t i) {
  hwy::Prefetch(u + 2 * F + i);
  hwy::Prefetch(v + 2 * F + i);
}

void swiglu_forward(F32 h, CF32 uv) {
  const int64_t S = h.rows(), F = h.cols();
  parallel_for(S, row_grain(F), [&](int64_t s) HWY_ATTR {
    const float *u = uv.row(s), *v = u + F;
    float* to = h.row(s);
    for_vectors(F, [&](auto at, int64_t i) HWY_ATTR {
      prefetch_next_row(u, v, F, i);
      const Vec gate = at.load(u + i), silu = hn::Mul(gate, sigmoid(gate).value);
      at.store(hn::Mul(silu, at.load(v + i)), to + i);
    });
  });
}

void swiglu_backward(F32 duv, F32 dh_to_h, CF32 uv) {
  const int64_t S = dh_to_h.rows(), F = dh_to_h.cols();
  parallel_for(S, row_grain(F), [&](int64_t s) HWY_ATTR {
    const float *u = uv.row(s), *v = u + F;
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

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(swiglu_forward);
HWY_EXPORT(swiglu_backward);

namespace cpu {

void swiglu_forward(F32 h, CF32 uv) { HWY_DYNAMIC_DISPATCH(swiglu_forward)(h, uv); }
void swiglu_backward(F32 duv, F32 dh_to_h, CF32 uv) { HWY_DYNAMIC_DISPATCH(swiglu_backward)(duv, dh_to_h, uv); }

}  // namespace cpu
}  // namespace isobath
#endif
