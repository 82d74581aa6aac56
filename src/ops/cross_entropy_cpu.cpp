#include "base/simd.h"
#include "ops/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cross_entropy_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "ops/rows-inl.h"
#include "ops/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// The largest of a row. A NaN may be lost here; the sums over the row find it.
HWY_INLINE float row_max(const float* z, int64_t V) {
  const int64_t L = lane_count();
  if (V < L) {
    float most = z[0];
    for (int64_t v = 1; v < V; v++) most = std::max(most, z[v]);
    return most;
  }
  Vec most = hn::LoadU(Tag(), z);
  for (int64_t v = L; v + L <= V; v += L) most = hn::Max(most, hn::LoadU(Tag(), z + v));
  most = hn::Max(most, hn::LoadU(Tag(), z + V - L));  // overlaps: the largest does not mind
  return hn::GetLane(hn::MaxOfLanes(Tag(), most));
}

// sum_v e^d and sum_v e^d d with d = z[v] - most <= 0.
struct RowSums {
  float exps, weighted;
};
HWY_INLINE RowSums row_sums(const float* z, int64_t V, float most) {
  const int64_t L = lane_count();
  const Vec shift = hn::Set(Tag(), most);
  Vec exps0 = hn::Zero(Tag()), exps1 = exps0, weighted0 = exps0, weighted1 = exps0;
  int64_t v = 0;
  for (; v + 2 * L <= V; v += 2 * L) {
    const Vec d0 = hn::Sub(hn::LoadU(Tag(), z + v), shift), d1 = hn::Sub(hn::LoadU(Tag(), z + v + L), shift);
    const Vec e0 = exp_of_negative(d0), e1 = exp_of_negative(d1);
    exps0 = hn::Add(exps0, e0);
    exps1 = hn::Add(exps1, e1);
    weighted0 = hn::MulAdd(e0, d0, weighted0);
    weighted1 = hn::MulAdd(e1, d1, weighted1);
  }
  for (; v < V; v += L) {
    const int64_t count = std::min(L, V - v);
    const Vec d = hn::Sub(Part{count}.load(z + v), shift);
    const auto inside = hn::FirstN(Tag(), size_t(count));
    const Vec e = hn::IfThenElseZero(inside, exp_of_negative(d));
    exps0 = hn::Add(exps0, e);
    weighted0 = hn::MulAdd(e, hn::IfThenElseZero(inside, d), weighted0);
  }
  return {hn::GetLane(hn::SumOfLanes(Tag(), hn::Add(exps0, exps1))),
          hn::GetLane(hn::SumOfLanes(Tag(), hn::Add(weighted0, weighted1)))};
}

void cross_entropy(F32 z, F32 loss, F32 entropy, CI32 target, float scale) {
  const int64_t V = z.cols();
  parallel_for(z.rows(), row_grain(V), [&](int64_t n) HWY_ATTR {
    float* zn = z.row(n);  // (V)
    const int32_t t = target[n];
    const float most = row_max(zn, V);
    const RowSums sums = row_sums(zn, V, most);
    // A logit that is NaN or infinite, whichever column it is in, makes the second sum NaN.
    const float log_exps = std::isnan(sums.weighted) ? sums.weighted : std::log(sums.exps);  // lse - most
    loss[n] = t < 0 ? 0 : log_exps + (most - zn[t]);
    entropy[n] = log_exps - sums.weighted / sums.exps;
    if (scale == 0) return;
    const Vec shift = hn::Set(Tag(), most), factor = hn::Set(Tag(), t < 0 ? 0 : scale / sums.exps);
    for_vectors(V, [&](auto at, int64_t v) HWY_ATTR {
      at.store(hn::Mul(factor, exp_of_negative(hn::Sub(at.load(zn + v), shift))), zn + v);
    });
    if (t >= 0) zn[t] -= scale;
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(cross_entropy);

namespace cpu {

void cross_entropy(F32 z, F32 loss, F32 entropy, CI32 target, float scale) {
  HWY_DYNAMIC_DISPATCH(cross_entropy)(z, loss, entropy, target, scale);
}

}  // namespace cpu
}  // namespace isobath
#endif
