#include "base/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <cmath>

#include "base/parallel.h"
#include "tensor/view.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Pairs [i, half) of every head of a row, one vector of pairs at a time; returns the first pair left over.
template <class D>
int64_t RotatePairs(D d, float* row, const float* angles, int64_t heads, int64_t half, int64_t i, float sign) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (; i + lanes <= half; i += lanes) {
    const auto cos = hn::LoadU(d, angles + i);
    const auto sin = hn::Mul(hn::LoadU(d, angles + half + i), hn::Set(d, sign));
    for (int64_t h = 0; h < heads; h++) {
      float *first = row + h * 2 * half + i, *second = first + half;
      const auto u = hn::LoadU(d, first), v = hn::LoadU(d, second);
      hn::StoreU(hn::NegMulAdd(v, sin, hn::Mul(u, cos)), d, first);
      hn::StoreU(hn::MulAdd(u, sin, hn::Mul(v, cos)), d, second);
    }
  }
  return i;
}

// angles: half cosines, then half sines. sign -1 rotates back.
void RotateRow(float* row, const float* angles, int64_t heads, int64_t half, float sign) {
  const int64_t rest = RotatePairs(hn::ScalableTag<float>(), row, angles, heads, half, 0, sign);
  RotatePairs(hn::CappedTag<float, 1>(), row, angles, heads, half, rest, sign);
}

}  // namespace
}  // namespace isobath::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::cpu {

HWY_EXPORT(RotateRow);

namespace {

constexpr int64_t kGrainRows = 64;

void rotate(F32 x, CI32 position, CF32 table, int64_t heads, float sign) {
  const auto rotate_row = HWY_DYNAMIC_DISPATCH(RotateRow);
  parallel_for(x.rows(), kGrainRows,
               [&](int64_t s) { rotate_row(x.row(s), table.row(position[s]), heads, table.cols() / 2, sign); });
}

}  // namespace

void rope_table(F32 table, double theta) {
  const int64_t half = table.cols() / 2;
  parallel_for(table.rows(), kGrainRows, [&](int64_t t) {
    for (int64_t i = 0; i < half; i++) {
      const double angle = double(t) * std::pow(theta, -double(i) / double(half));
      table.row(t)[i] = float(std::cos(angle));
      table.row(t)[half + i] = float(std::sin(angle));
    }
  });
}

void rope_forward(F32 x, CI32 position, CF32 table, int64_t heads) { rotate(x, position, table, heads, 1); }

void rope_backward(F32 dx, CI32 position, CF32 table, int64_t heads) { rotate(dx, position, table, heads, -1); }

}  // namespace isobath::cpu
#endif  // HWY_ONCE
