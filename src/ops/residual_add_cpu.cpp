#include "base/simd.h"
#include "ops/residual_add.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/residual_add_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// a[s] + m[s], formed while it is read.
struct Sum {
  const float* a;  // (D)
  const float* m;  // (D) or null
  Sum(CF32 a_rows, CF32 m_rows, int64_t s) : a(a_rows.row(s)), m(m_rows.empty() ? nullptr : m_rows.row(s)) {}
  template <class At>
  HWY_INLINE Vec load(At at, int64_t i) const {
    const Vec v = at.load(a + i);
    return m == nullptr ? v : hn::Add(v, at.load(m + i));
  }
};

HWY_INLINE int64_t listed(CI32 index, int64_t s) { return index.empty() ? s : index[s]; }

// A gate of 1 must give the bits of no gate: a fused x + 1 * delta rounds once, as x + delta does, and where the
// instruction set has no fused form the product with 1 is exact.
template <class Term>
HWY_INLINE void add_row(float* row, CF32 gate, int64_t s, int64_t D, Term term) {
  const Vec g = hn::Set(Tag(), gate.empty() ? 1 : gate[s]);
  for_vectors(D, [&](auto at, int64_t i) HWY_ATTR { at.store(hn::MulAdd(g, term(at, i), at.load(row + i)), row + i); });
}

template <class T>
void forward_rows(F32 x, View<T> delta, CI32 index, CF32 gate, CF32 a, CF32 m) {
  const int64_t S = a.rows(), D = a.cols();
  parallel_for(S, row_grain(D), [&](int64_t s) HWY_ATTR {
    const Sum sum(a, m, s);
    T* kept = delta.empty() ? nullptr : delta.row(s);
    if (x.empty())
      for_vectors(D, [&](auto at, int64_t i) HWY_ATTR { at.store(sum.load(at, i), kept + i); });
    else if (kept == nullptr)
      add_row(x.row(listed(index, s)), gate, s, D, [&](auto at, int64_t i) HWY_ATTR { return sum.load(at, i); });
    else
      add_row(x.row(listed(index, s)), gate, s, D,
              [&](auto at, int64_t i) HWY_ATTR { return keep(at, sum.load(at, i), kept + i); });
  });
}

void residual_add_forward(F32 x, Stored delta, CI32 index, CF32 gate, CF32 a, CF32 m) {
  with_format(delta, [&](auto rows) { forward_rows(x, rows, index, gate, a, m); });
}

template <class T>
void backward_rows(F32 ddelta, F32 dgate, CF32 dx, CI32 index, CF32 gate, View<const T> delta) {
  const int64_t S = ddelta.rows(), D = dx.cols();
  parallel_for(S, row_grain(D), [&](int64_t s) HWY_ATTR {
    const float* row = dx.row(listed(index, s));
    float* to = ddelta.row(s);
    const Vec g = hn::Set(Tag(), gate.empty() ? 1 : gate[s]);
    if (dgate.empty()) {
      for_vectors(D, [&](auto at, int64_t i) HWY_ATTR { at.store(hn::Mul(g, at.load(row + i)), to + i); });
      return;
    }
    const T* term = delta.row(s);
    dgate[s] = sum_vectors(D, [&](Vec sum, auto at, int64_t i) HWY_ATTR {
      const Vec d = at.load(row + i);
      at.store(hn::Mul(g, d), to + i);
      return hn::MulAdd(d, at.load(term + i), sum);
    });
  });
}

void residual_add_backward(F32 ddelta, F32 dgate, CF32 dx, CI32 index, CF32 gate, CStored delta) {
  with_format(delta, [&](auto rows) { backward_rows(ddelta, dgate, dx, index, gate, rows); });
}

void scatter_add(F32 dx, CI32 index, CF32 da, CF32 db) {
  const int64_t S = da.rows(), D = dx.cols();
  parallel_for(S, row_grain(D), [&](int64_t s) HWY_ATTR {
    float* row = dx.row(listed(index, s));
    const Sum sum(da, db, s);
    for_vectors(D, [&](auto at, int64_t i) HWY_ATTR { at.store(hn::Add(at.load(row + i), sum.load(at, i)), row + i); });
  });
}

void router_backward_input(F32 dx, CF32 dr, CF32 w) {
  const int64_t N = dx.rows(), D = dx.cols();
  parallel_for(N, row_grain(D), [&](int64_t n) HWY_ATTR {
    float* row = dx.row(n);
    const Vec scale = hn::Set(Tag(), dr[n]);
    for_vectors(D, [&](auto at, int64_t i)
                       HWY_ATTR { at.store(hn::MulAdd(scale, at.load(w.data + i), at.load(row + i)), row + i); });
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(residual_add_forward);
HWY_EXPORT(residual_add_backward);
HWY_EXPORT(scatter_add);
HWY_EXPORT(router_backward_input);

namespace cpu {

void residual_add_forward(F32 x, Stored delta, CI32 index, CF32 gate, CF32 a, CF32 m) {
  HWY_DYNAMIC_DISPATCH(residual_add_forward)(x, delta, index, gate, a, m);
}
void residual_add_backward(F32 ddelta, F32 dgate, CF32 dx, CI32 index, CF32 gate, CStored delta) {
  HWY_DYNAMIC_DISPATCH(residual_add_backward)(ddelta, dgate, dx, index, gate, delta);
}
void scatter_add(F32 dx, CI32 index, CF32 da, CF32 db) { HWY_DYNAMIC_DISPATCH(scatter_add)(dx, index, da, db); }
void router_backward_input(F32 dx, CF32 dr, CF32 w) { HWY_DYNAMIC_DISPATCH(router_backward_input)(dx, dr, w); }

}  // namespace cpu
}  // namespace isobath
#endif
