// Vector loops over a row of any length, for the _cpu.cpp files. Highway includes this once per instruction set.
//
// An element's bits must not depend on where a thread's share begins or ends. Element-wise loops get that for free:
// the last, partial vector runs the same instructions as a whole one. Sums along a row use a fixed order of lanes.
#include "base/parallel.h"
#include "ops/rows.h"

#if defined(ISOBATH_OPS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOBATH_OPS_ROWS_INL_H_
#undef ISOBATH_OPS_ROWS_INL_H_
#else
#define ISOBATH_OPS_ROWS_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

HWY_INLINE int64_t lane_count() { return int64_t(hn::Lanes(Tag())); }

// How a loop's body reads and writes a whole vector, or the first `count` lanes of the last one (others read as 0).
struct Whole {
  HWY_INLINE Vec load(const float* p) const { return hn::LoadU(Tag(), p); }
  HWY_INLINE void store(Vec v, float* p) const { hn::StoreU(v, Tag(), p); }
};
struct Part {
  int64_t count;
  HWY_INLINE Vec load(const float* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT  // masked loads of this instruction set touch the lanes they leave out
    HWY_ALIGN float lanes[hn::MaxLanes(Tag())] = {};
    for (int64_t i = 0; i < count; i++) lanes[i] = p[i];
    return hn::Load(Tag(), lanes);
#else
    return hn::MaskedLoad(hn::FirstN(Tag(), size_t(count)), Tag(), p);
#endif
  }
  HWY_INLINE void store(Vec v, float* p) const {
#if HWY_MEM_OPS_MIGHT_FAULT
    HWY_ALIGN float lanes[hn::MaxLanes(Tag())];
    hn::Store(v, Tag(), lanes);
    for (int64_t i = 0; i < count; i++) p[i] = lanes[i];
#else
    hn::BlendedStore(v, hn::FirstN(Tag(), size_t(count)), Tag(), p);
#endif
  }
};

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
