// Vector loops over a row of any length, for the _cpu.cpp files. Highway includes this once per instruction set.
//
// An element's bits must not depend on where a thread's share begins or ends. Element-wise loops get that for free:
// the last, partial vector runs the same instructions as a whole one. Sums along a row use a fixed order of lanes.
#include "base/parallel.h"
#include "ops/rows.h"
#include "tensor/stored.h"

#if defined(ISOBATH_OPS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOBATH_OPS_ROWS_INL_H_
#undef ISOBATH_OPS_ROWS_INL_H_
#else
#define ISOBATH_OPS_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include "ops/stored-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

HWY_INLINE int64_t lane_count() { return int64_t(hn::Lanes(Tag())); }

// How a loop's body reads and writes a whole vector, or the first `count` lanes of the last one (others read as 0), in
// memory of either format.
struct Whole {
  template <class T>
  HWY_INLINE Vec load(const T* p) const {
    return load_stored(Tag(), p);
  }
  template <class T>
  HWY_INLINE void store(Vec v, T* p) const {
    store_stored(v, Tag(), p);
  }
};
struct Part {
  int64_t count;
  HWY_INLINE Vec load(const float* p) const { return load_lanes(Tag(), p); }
  HWY_INLINE Vec load(const Bf16* p) const { return widen(Tag(), load_lanes(Halves<Tag>(), &p->bits)); }
  HWY_INLINE void store(Vec v, float* p) const { store_lanes(Tag(), v, p); }
  HWY_INLINE void store(Vec v, Bf16* p) const { store_lanes(Halves<Tag>(), narrow(Tag(), v), &p->bits); }

 private:
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load_lanes(D d, const T* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT  // masked loads of this instruction set touch the lanes they leave out
    HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
    for (int64_t i = 0; i < count; i++) lanes[i] = p[i];
    return hn::Load(d, lanes);
#else
    return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, p);
#endif
  }
  template <class D, class T>
  HWY_INLINE void store_lanes(D d, hn::Vec<D> v, T* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    hn::Store(v, d, lanes);
    for (int64_t i = 0; i < count; i++) p[i] = lanes[i];
#else
    hn::BlendedStore(v, hn::FirstN(d, size_t(count)), d, p);
#endif
  }
};

// Stores v and returns what a load will give back.
template <class At, class T>
HWY_INLINE Vec keep(At at, Vec v, T* p) {
  at.store(v, p);
  return as_stored<T>(Tag(), v);
}

// body(at, i): elements from i on, through at.load and at.store.
template <class Body>
HWY_API void for_vectors(int64_t n, Body body) {
  const int64_t L = lane_count();
  int64_t i = 0;
  for (; i + L <= n; i += L) body(Whole(), i);
  if (i < n) body(Part{n - i}, i);
}

// The sum of a row: body(sum, at, i) returns `sum` plus the terms from i on; lanes that a part leaves out must add 0.
// Four running sums hide the latency of the adder; the order depends on n and the instruction set alone.
template <class Body>
HWY_API float sum_vectors(int64_t n, Body body) {
  const int64_t L = lane_count();
  Vec sum0 = hn::Zero(Tag()), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  int64_t i = 0;
  for (; i + 4 * L <= n; i += 4 * L) {
    sum0 = body(sum0, Whole(), i);
    sum1 = body(sum1, Whole(), i + L);
    sum2 = body(sum2, Whole(), i + 2 * L);
    sum3 = body(sum3, Whole(), i + 3 * L);
  }
  for (; i + L <= n; i += L) sum0 = body(sum0, Whole(), i);
  if (i < n) sum1 = body(sum1, Part{n - i}, i);
  return hn::GetLane(hn::SumOfLanes(Tag(), hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
}

// Sums over rows. add_row(sum, s) adds row s to a chunk's sum (cols floats); the chunks' sums (kGradChunks, cols) are
// then added to `to` in order. Of no rows, `to` is left alone.
template <class AddRow>
HWY_API void sum_rows(float* to, F32 partial, int64_t rows, AddRow add_row) {
  if (rows == 0) return;
  const int64_t cols = partial.cols();
  parallel_for(kGradChunks, rows > row_grain(cols) ? 0 : kGradChunks, [&](int64_t chunk) HWY_ATTR {
    float* sum = partial.row(chunk);
    for_vectors(cols, [&](auto at, int64_t i) HWY_ATTR { at.store(hn::Zero(Tag()), sum + i); });
    const Range range = chunk_of(rows, chunk);
    for (int64_t s = range.begin; s < range.end; s++) add_row(sum, s);
  });
  for_vectors(cols, [&](auto at, int64_t i) HWY_ATTR {
    Vec sum = at.load(partial.data + i);
    for (int64_t chunk = 1; chunk < kGradChunks; chunk++) sum = hn::Add(sum, at.load(partial.row(chunk) + i));
    at.store(hn::Add(at.load(to + i), sum), to + i);
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
