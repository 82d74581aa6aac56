// Rounding a group of weights to int8, as FrozenLinear's header says.
#include "base/simd.h"
#include "ops/frozen_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/frozen_pack_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <bit>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace isobath::frozen::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using PackTag = hn::CappedTag<float, kGroup>;

uint16_t bf16_above(float value) { return uint16_t((std::bit_cast<uint32_t>(value) + 0xFFFF) >> 16); }

// Quotients are divisions, not products with an inverse: that would round some halves the other way.
uint16_t quantize_weights(int8_t* code, const float* w) {
  const PackTag d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto most = hn::Zero(d), unsound = most;
  for (int64_t k = 0; k < kGroup; k += lanes) {
    const auto v = hn::LoadU(d, w + k);
    most = hn::Max(most, hn::Abs(v));
    unsound = hn::MulAdd(v, hn::Zero(d), unsound);  // NaN of NaN and infinity, which the maximum may lose
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  const bool finite = hn::GetLane(hn::SumOfLanes(d, unsound)) == 0;
  const uint16_t scale = !finite ? kBf16NaN : largest < kSmallest ? uint16_t(0) : bf16_above(largest / 127);
  const hn::Rebind<int8_t, PackTag> bytes;
  const auto by = hn::Set(d, std::bit_cast<float>(uint32_t(scale) << 16));
  for (int64_t k = 0; k < kGroup; k += lanes) {
    const auto quotient = scale == 0 || !finite ? hn::Zero(d) : hn::Div(hn::LoadU(d, w + k), by);
    hn::StoreU(hn::DemoteTo(bytes, hn::NearestInt(quotient)), bytes, code + k);
  }
  return scale;
}

}  // namespace isobath::frozen::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::frozen {
HWY_EXPORT(quantize_weights);

namespace cpu {
uint16_t quantize_weights(int8_t* code, const float* w) { return HWY_DYNAMIC_DISPATCH(quantize_weights)(code, w); }
}  // namespace cpu
}  // namespace isobath::frozen
#endif
