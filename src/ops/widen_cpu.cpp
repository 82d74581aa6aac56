#include "base/simd.h"
#include "ops/widen.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/widen_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

void widen_rows(F32 to, View<const Bf16> from) {
  parallel_for(to.rows(), row_grain(to.cols()), [&](int64_t s) HWY_ATTR {
    const Bf16* row = from.row(s);
    float* wide = to.row(s);
    for_vectors(to.cols(), [&](auto at, int64_t i) HWY_ATTR { at.store(at.load(row + i), wide + i); });
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(widen_rows);

namespace cpu {

void widen(F32 to, View<const Bf16> from) { HWY_DYNAMIC_DISPATCH(widen_rows)(to, from); }

}  // namespace cpu
}  // namespace isobath
#endif
