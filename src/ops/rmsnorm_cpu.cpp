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

// z of one row, formed while it is read.
template <class T>
struct Row {
  const T* x;        // (D)
  const float* add;  // (D) or null
  template <class At>
  HWY_INLINE Vec z(At at, int64_t i) const {
    const Vec v = at.load(x + i);
    return add == nullptr ? v : hn::Add(v, at.load(add + i));
  }
};

template <class T>
HWY_INLINE void normalize(float* y, const Row<T>& row, const float* weight, float rstd, int64_t D) {
  const Vec scale = hn::Set(Tag(), rstd);
  for_vectors(D, [&](auto at, int64_t i)
                     HWY_ATTR { at.store(hn::Mul(hn::Mul(row.z(at, i), scale), at.load(weight + i)), y + i); });
}

template <class X, class Saved>
void forward_rows(F32 y, F32 rstd, View<Saved> saved, View<X> x, CI32 index, CF32 add, CF32 weight, float eps) {
  const int64_t S = y.rows(), D = y.cols();
  const auto rstd_of = [&](float squares) { return 1 / std::sqrt(squares / float(D) + eps); };
  parallel_for(S, row_grain(D), [&](int64_t s) HWY_ATTR {
    const Row<X> row{x.row(index.empty() ? s : index[s]), add.empty() ? nullptr : add.row(s)};
    if (saved.empty()) {
      rstd[s] = rstd_of(sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
        const Vec z = row.z(at, i);
        return hn::MulAdd(z, z, sum);
      }));
      return normalize(y.row(s), row, weight.data, rstd[s], D);
    }
    Saved* to = saved.row(s);
    rstd[s] = rstd_of(sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      const Vec z = keep(at, row.z(at, i), to + i);
      return hn::MulAdd(z, z, sum);
    }));
    normalize(y.row(s), Row<Saved>{to, nullptr}, weight.data, rstd[s], D);
  });
}

void rmsnorm_forward(F32 y, F32 rstd, Stored saved, const RmsNormIn& in, CF32 weight, float eps) {
  with_format(in.x, [&](auto x) {
    with_format(saved, [&](auto to) { forward_rows(y, rstd, to, x, in.index, in.add, weight, eps); });
  });
}

void rmsnorm_apply(F32 y, CStored z, CF32 weight, CF32 rstd, CI32 index) {
  const int64_t J = y.rows(), D = y.cols();
  with_format(z, [&]<class T>(View<const T> rows) {
    parallel_for(J, row_grain(D), [&](int64_t j) HWY_ATTR {
      const int64_t s = index.empty() ? j : index[j];
      normalize(y.row(j), Row<T>{rows.row(s), nullptr}, weight.data, rstd[s], D);
    });
  });
}

template <class T>
void backward_rows(F32 dz, Accum dweight, CF32 dy, View<const T> z, CF32 weight, CF32 rstd, F32 partial) {
  const int64_t S = dz.rows(), D = dz.cols();
  sum_rows(dweight.view.data, partial, S, [&](float* dw, int64_t s) HWY_ATTR {
    const T* row = z.row(s);
    const float* from = dy.row(s);
    float* to = dz.row(s);
    const Vec scale = hn::Set(Tag(), rstd[s]);
    const float gz = sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      const Vec v = at.load(row + i), d = at.load(from + i);
      at.store(hn::MulAdd(hn::Mul(d, v), scale, at.load(dw + i)), dw + i);
      return hn::MulAdd(hn::Mul(d, at.load(weight.data + i)), v, sum);
    });
    const Vec pull = hn::Set(Tag(), gz / float(D) * rstd[s] * rstd[s]);
    for_vectors(D, [&](auto at, int64_t i) HWY_ATTR {
      const Vec g = hn::Mul(at.load(from + i), at.load(weight.data + i));
      at.store(hn::Mul(scale, hn::NegMulAdd(at.load(row + i), pull, g)), to + i);
    });
  });
}

void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, CStored z, CF32 weight, CF32 rstd, F32 partial) {
  with_format(z, [&](auto rows) { backward_rows(dz, dweight, dy, rows, weight, rstd, partial); });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(rmsnorm_forward);
HWY_EXPORT(rmsnorm_apply);
HWY_EXPORT(rmsnorm_backward);

namespace cpu {

void rmsnorm_forward(F32 y, F32 rstd, Stored saved, const RmsNormIn& in, CF32 weight, float eps) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_forward)(y, rstd, saved, in, weight, eps);
}
void rmsnorm_apply(F32 y, CStored z, CF32 weight, CF32 rstd, CI32 index) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_apply)(y, z, weight, rstd, index);
}
void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, CStored z, CF32 weight, CF32 rstd, F32 partial) {
  HWY_DYNAMIC_DISPATCH(rmsnorm_backward)(dz, dweight, dy, z, weight, rstd, partial);
}

}  // namespace cpu
}  // namespace isobath
#endif
