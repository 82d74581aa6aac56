#include "base/simd.h"
#include "ops/rmsnorm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rmsnorm_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// z of one listed row, formed while it is read.
struct Row {
  const float* x;    // (D)
  const float* add;  // (D) or null
  Row(const RmsNormIn& in, int64_t s)
      : x(in.x.row(in.index.empty() ? s : in.index[s])), add(in.add.empty() ? nullptr : in.add.row(s)) {}
  template <class At>
  HWY_INLINE Vec z(At at, int64_t i) const {
    const Vec v = at.load(x + i);
    return add == nullptr ? v : hn::Add(v, at.load(add + i));
  }
};

HWY_INLINE void normalize(float* y, const Row& row, const float* weight, float rstd, int64_t D) {
  const Vec scale = hn::Set(Tag(), rstd);
  for_vectors(D, [&](auto at, int64_t i)
                     HWY_ATTR { at.store(hn::Mul(hn::Mul(row.z(at, i), scale), at.load(weight + i)), y + i); });
}

void rmsnorm_forward(F32 y, F32 rstd, F32 saved, const RmsNormIn& in, CF32 weight, float eps) {
  const int64_t S = y.rows(), D = y.cols();
  parallel_for(S, row_grain(D), [&](int64_t s) HWY_ATTR {
    const Row row(in, s);
    float* keep = saved.empty() ? nullptr : saved.row(s);
    const float squares = sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      if (keep != nullptr) at.store(at.load(row.x + i), keep + i);
      const Vec z = row.z(at, i);
      return hn::MulAdd(z, z, sum);
    });
    rstd[s] = 1 / std::sqrt(squares / float(D) + eps);
    normalize(y.row(s), row, weight.data, rstd[s], D);
  });
}

void rmsnorm_apply(F32 y, const RmsNormIn& in, CF32 weight, CF32 rstd) {
  const int64_t S = y.rows(), D = y.cols();
  parallel_for(S, row_grain(D), [&](int64_t s) HWY_ATTR { normalize(y.row(s), Row(in, s), weight.data, rstd[s], D); });
}

void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, const RmsNormIn& in, CF32 weight, CF32 rstd, F32 partial) {
  const int64_t S = dz.rows(), D = dz.cols();
  sum_rows(dweight.view.data, partial, S, [&](float* dw, int64_t s) HWY_ATTR {
    const Row row(in, s);
    const float* from = dy.row(s);
    float* to = dz.row(s);
    const Vec scale = hn::Set(Tag(), rstd[s]);
    const float gz = sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      const Vec z = row.z(at, i), d = at.load(from + i);
      at.store(hn::MulAdd(hn::Mul(d, z), scale, at.load(dw + i)), dw + i);
      return hn::MulAdd(hn::Mul(d, at.load(weight.data + i)), z, sum);
    });
    const Vec pull = hn::Set(Tag(), gz / float(D) * rstd[s] * rstd[s]);
    for_vectors(D, [&](auto at, int64_t i) HWY_ATTR {
      const Vec g = hn::Mul(at.load(from + i), at.load(weight.data + i));
      at.store(hn::Mul(scale, hn::NegMulAdd(row.z(at, i), pull, g)), to + i);
    });
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(rmsnorm_forward);
HWY_EXPORT(rmsnorm_apply);
HWY_EXPORT(rmsnorm_backward);

namespace cpu {

void rmsnorm_forward(F32 y, F32 rstd, F32 saved, const RmsNormIn& in, CF32 weight, float eps) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_forward)(y, rstd, saved, in, weight, eps);
}
void rmsnorm_apply(F32 y, const RmsNormIn& in, CF32 weight, CF32 rstd) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_apply)(y, in, weight, rstd);
}
void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, const RmsNormIn& in, CF32 weight, CF32 rstd, F32 partial) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_backward)(dz, dweight, dy, in, weight, rstd, partial);
}

}  // namespace cpu
}  // namespace isobath
#endif
