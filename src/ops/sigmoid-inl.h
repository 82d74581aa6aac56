// The logistic function of a vector of floats, to about two units in the last place.
#if defined(ISOBATH_OPS_SIGMOID_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOBATH_OPS_SIGMOID_INL_H_
#undef ISOBATH_OPS_SIGMOID_INL_H_
#else
#define ISOBATH_OPS_SIGMOID_INL_H_
#endif

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// exp(x) for x <= 0; 0 where the result would be denormal.
// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln(2)/2: there Taylor's first eight terms are exact to 2^-27.
HWY_INLINE Vec exp_of_negative(Vec x) {
  const auto set = [](float c) HWY_ATTR { return hn::Set(Tag(), c); };
  const Vec smallest = set(-87.3f);  // n >= -126: 2^n is a normal number
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits; the 127 makes it the exponent field of 2^n.
  const Vec shift = set(0x1.8p23f + 127);
  const Vec clamped = hn::Max(smallest, x);
  const Vec shifted = hn::MulAdd(clamped, set(1.44269504089f), shift), n = hn::Sub(shifted, shift);
  const Vec power = hn::BitCast(Tag(), hn::ShiftLeft<23>(hn::BitCast(hn::RebindToUnsigned<Tag>(), shifted)));
  // ln 2 in two parts, the first with so few bits that n times it is exact.
  const Vec r = hn::NegMulAdd(n, set(-0x1.bd0106p-13f), hn::NegMulAdd(n, set(0x1.63p-1f), clamped));
  Vec p = set(1 / 5040.0f);
  for (const float c : {1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f, 1.0f, 1.0f}) p = hn::MulAdd(p, r, set(c));
  return hn::IfThenZeroElse(hn::Lt(x, smallest), hn::Mul(p, power));
}

// sigmoid(u) and 1 - sigmoid(u), neither by subtraction: both keep their relative precision in the far tails.
// Of NaN either may be a number: what uses them multiplies by u as well.
struct Sigmoid {
  Vec value, complement;
};
HWY_INLINE Sigmoid sigmoid(Vec u) {
  const Vec e = exp_of_negative(hn::Neg(hn::Abs(u)));
  const Vec large = hn::Div(hn::Set(Tag(), 1), hn::Add(hn::Set(Tag(), 1), e)), small = hn::Mul(e, large);
  const auto negative = hn::Lt(u, hn::Zero(Tag()));
  return {hn::IfThenElse(negative, small, large), hn::IfThenElse(negative, large, small)};
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
