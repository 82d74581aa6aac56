// Vectors of fp32 numbers from and to memory in either format of tensor/stored.h. Highway includes this once per
// instruction set. By integer operations, not by the conversion instructions of some sets: those take subnormal numbers
// for zero, and every set must give the same bits.
#include "tensor/stored.h"

#if defined(ISOBATH_OPS_STORED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOBATH_OPS_STORED_INL_H_
#undef ISOBATH_OPS_STORED_INL_H_
#else
#define ISOBATH_OPS_STORED_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The 16-bit halves of a vector of floats.
template <class D>
using Halves = hn::Rebind<uint16_t, D>;

template <class D>
HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<Halves<D>> upper) {
  const hn::RebindToUnsigned<D> bits;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, upper)));
}

// The upper half of v rounded to nearest, ties to even, in the lower half of each lane. NaN stays NaN: rounding could
// carry it over into infinity.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> rounded_half(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> u;
  const auto bits = hn::BitCast(u, v), half = hn::ShiftRight<16>(bits);
  const auto carry = hn::Add(hn::And(half, hn::Set(u, 1)), hn::Set(u, 0x7fff));
  return hn::IfThenElse(hn::RebindMask(u, hn::IsNaN(v)), hn::Or(half, hn::Set(u, 0x40)),
                        hn::ShiftRight<16>(hn::Add(bits, carry)));
}

template <class D>
HWY_INLINE hn::Vec<Halves<D>> narrow(D d, hn::Vec<D> v) {
  const hn::RebindToSigned<D> i;  // 0 to 65535: the saturation of this conversion has nothing to do
  return hn::DemoteTo(Halves<D>(), hn::BitCast(i, rounded_half(d, v)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_stored(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> load_stored(D d, const Bf16* p) {
  return widen(d, hn::LoadU(Halves<D>(), &p->bits));
}
template <class D>
HWY_INLINE void store_stored(hn::Vec<D> v, D d, float* p) {
  hn::StoreU(v, d, p);
}
template <class D>
HWY_INLINE void store_stored(hn::Vec<D> v, D d, Bf16* p) {
  hn::StoreU(narrow(d, v), Halves<D>(), &p->bits);
}

// What a load gives back of v once it is stored as a T.
template <class T, class D>
HWY_INLINE hn::Vec<D> as_stored(D d, hn::Vec<D> v) {
  if constexpr (std::is_same_v<T, Bf16>)
    return hn::BitCast(d, hn::ShiftLeft<16>(rounded_half(d, v)));
  else
    return v;
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
