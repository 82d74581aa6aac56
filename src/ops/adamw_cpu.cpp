#include "base/simd.h"
#include "ops/adamw.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/adamw_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

void adamw_step(F32 w, F32 m, F32 v, F32 g, const AdamW& option, float gradient_scale, int64_t t) {
  constexpr int64_t kChunk = int64_t(1) << 12;
  const int64_t n = w.numel();
  const float debias_m = float(1 / (1 - std::pow(double(option.beta1), double(t))));
  const float debias_v = float(1 / (1 - std::pow(double(option.beta2), double(t))));
  const float fresh_m = float(1 - double(option.beta1)), fresh_v = float(1 - double(option.beta2));
  parallel_for((n + kChunk - 1) / kChunk, 4, [&](int64_t chunk) HWY_ATTR {
    const int64_t begin = chunk * kChunk;
    float *wc = w.data + begin, *mc = m.data + begin, *vc = v.data + begin, *gc = g.data + begin;
    for_vectors(std::min(kChunk, n - begin), [&](auto at, int64_t i) HWY_ATTR {
      const auto set = [](float c) HWY_ATTR { return hn::Set(Tag(), c); };
      const Vec gs = hn::Mul(at.load(gc + i), set(gradient_scale)), weight = at.load(wc + i);
      const Vec mean = hn::MulAdd(set(option.beta1), at.load(mc + i), hn::Mul(set(fresh_m), gs));
      const Vec square = hn::MulAdd(set(option.beta2), at.load(vc + i), hn::Mul(set(fresh_v), hn::Mul(gs, gs)));
      const Vec spread = hn::Add(hn::Sqrt(hn::Mul(square, set(debias_v))), set(option.eps));
      const Vec step = hn::Div(hn::Mul(mean, set(debias_m)), spread);
      const Vec decayed = hn::MulAdd(set(option.weight_decay), weight, step);
      at.store(mean, mc + i);
      at.store(square, vc + i);
      at.store(hn::NegMulAdd(set(option.lr), decayed, weight), wc + i);
      at.store(hn::Zero(Tag()), gc + i);
    });
  });
}

// A square of a float is exact in float64.
double sum_of_squares(CF32 x, View<double> partial) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<float, decltype(wide)> narrow;
  const int64_t n = x.numel(), chunks = (n + kSumChunk - 1) / kSumChunk, L = int64_t(hn::Lanes(wide));
  parallel_for(chunks, 1, [&](int64_t chunk) HWY_ATTR {
    const float* p = x.data + chunk * kSumChunk;
    const int64_t count = std::min(kSumChunk, n - chunk * kSumChunk);
    auto sum0 = hn::Zero(wide), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    const auto add = [&](auto& sum, const float* at) HWY_ATTR {
      const auto v = hn::PromoteTo(wide, hn::LoadU(narrow, at));
      sum = hn::MulAdd(v, v, sum);
    };
    int64_t i = 0;
    for (; i + 4 * L <= count; i += 4 * L) {
      add(sum0, p + i);
      add(sum1, p + i + L);
      add(sum2, p + i + 2 * L);
      add(sum3, p + i + 3 * L);
    }
    double sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
    for (; i < count; i++) sum += double(p[i]) * double(p[i]);
    partial[chunk] = sum;
  });
  double sum = 0;
  for (int64_t chunk = 0; chunk < chunks; chunk++) sum += partial[chunk];
  return sum;
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(adamw_step);
HWY_EXPORT(sum_of_squares);

namespace cpu {

void adamw_step(F32 w, F32 m, F32 v, F32 g, const AdamW& option, float gradient_scale, int64_t t) {
  HWY_DYNAMIC_DISPATCH(adamw_step)(w, m, v, g, option, gradient_scale, t);
}
double sum_of_squares(CF32 x, View<double> partial) { return HWY_DYNAMIC_DISPATCH(sum_of_squares)(x, partial); }

}  // namespace cpu
}  // namespace isobath
#endif
