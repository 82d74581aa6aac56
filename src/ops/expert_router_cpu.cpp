#include "base/simd.h"
#include "ops/expert_router.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/expert_router_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// A row, normed while it is read: the same products in the same order as rmsnorm_apply's.
template <class T>
struct Normed {
  const T* z;         // (D)
  const float* norm;  // (D)
  float rstd;
  template <class At>
  HWY_INLINE Vec load(At at, int64_t i) const {
    return hn::Mul(hn::Mul(at.load(z + i), hn::Set(Tag(), rstd)), at.load(norm + i));
  }
};

HWY_INLINE void softmax(float* p, const float* logit, int64_t O) {
  const float most = *std::max_element(logit, logit + O);
  float sum = 0;
  for (int64_t o = 0; o < O; o++) sum += p[o] = std::exp(logit[o] - most);
  for (int64_t o = 0; o < O; o++) p[o] /= sum;
}

void expert_router_forward(F32 logit, F32 p, const NormedRows& h, CF32 W) {
  const int64_t S = p.shape[0], O = p.cols(), D = W.cols();
  with_format(h.z, [&]<class T>(View<const T> z) {
    parallel_for(S, row_grain(O * D), [&](int64_t s) HWY_ATTR {
      const Normed<T> row{z.row(s), h.norm.data, h.rstd[s]};
      for (int64_t o = 0; o < O; o++)
        logit.row(s)[o] = sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
          return hn::MulAdd(row.load(at, i), at.load(W.row(o) + i), sum);
        });
      softmax(p.row(s), logit.row(s), O);
    });
  });
}

void expert_router_backward_weight(F32 dW, CF32 dlogit, const NormedRows& h, F32 partial) {
  const int64_t S = dlogit.shape[0], O = dlogit.cols(), D = dW.cols();
  with_format(h.z, [&]<class T>(View<const T> z) {
    sum_rows(dW.data, partial, S, [&](float* sum, int64_t s) HWY_ATTR {
      const Normed<T> row{z.row(s), h.norm.data, h.rstd[s]};
      for_vectors(D, [&](auto at, int64_t i) HWY_ATTR {
        const Vec v = row.load(at, i);
        for (int64_t o = 0; o < O; o++) {
          float* to = sum + o * D + i;
          at.store(hn::MulAdd(hn::Set(Tag(), dlogit.row(s)[o]), v, at.load(to)), to);
        }
      });
    });
  });
}

void expert_router_backward_input(F32 dh, CF32 dlogit, CF32 W) {
  const int64_t S = dh.shape[0], O = dlogit.cols(), D = W.cols();
  parallel_for(S, row_grain(O * D), [&](int64_t s) HWY_ATTR {
    float* row = dh.row(s);
    for_vectors(D, [&](auto at, int64_t i) HWY_ATTR {
      Vec sum = at.load(row + i);
      for (int64_t o = 0; o < O; o++) sum = hn::MulAdd(hn::Set(Tag(), dlogit.row(s)[o]), at.load(W.row(o) + i), sum);
      at.store(sum, row + i);
    });
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(expert_router_forward);
HWY_EXPORT(expert_router_backward_weight);
HWY_EXPORT(expert_router_backward_input);

namespace cpu {

void expert_router_forward(F32 logit, F32 p, const NormedRows& h, CF32 W) {
  HWY_DYNAMIC_DISPATCH(expert_router_forward)(logit, p, h, W);
}

// A few numbers per row: plain code.
void expert_softmax_backward(F32 dlogit, CF32 dp, CF32 p) {
  const int64_t S = p.shape[0], O = p.cols();
  parallel_for(S, row_grain(O), [&](int64_t s) {
    float dot = 0;
    for (int64_t o = 0; o < O; o++) dot += dp.row(s)[o] * p.row(s)[o];
    for (int64_t o = 0; o < O; o++) dlogit.row(s)[o] += p.row(s)[o] * (dp.row(s)[o] - dot);
  });
}

void expert_router_backward_weight(F32 dW, CF32 dlogit, const NormedRows& h, F32 partial) {
  HWY_DYNAMIC_DISPATCH(expert_router_backward_weight)(dW, dlogit, h, partial);
}

void expert_router_backward_input(F32 dh, CF32 dlogit, CF32 W) {
  HWY_DYNAMIC_DISPATCH(expert_router_backward_input)(dh, dlogit, W);
}

}  // namespace cpu
}  // namespace isobath
#endif
