#include "base/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rope_cpu.cpp"
#include <hwy/foreach_target.h>
// After foreach_target, as Highway asks.
#include <hwy/highway.h>

#include <cmath>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {
namespace {

// Pairs [i, half) of every head of a row, one vector of pairs at a time; returns the first pair left over.
template <class D, class T>
int64_t rotate_pairs(D d, T* to, const float* row, const float* angles, int64_t heads, int64_t half, int64_t i,
                     float sign) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (; i + lanes <= half; i += lanes) {
    const auto cos = hn::LoadU(d, angles + i);
    const auto sin = hn::Mul(hn::LoadU(d, angles + half + i), hn::Set(d, sign));
    for (int64_t h = 0; h < heads; h++) {
      const int64_t first = h * 2 * half + i, second = first + half;
      const auto u = hn::LoadU(d, row + first), v = hn::LoadU(d, row + second);
      store_stored(hn::NegMulAdd(v, sin, hn::Mul(u, cos)), d, to + first);
      store_stored(hn::MulAdd(u, sin, hn::Mul(v, cos)), d, to + second);
    }
  }
  return i;
}

// angles: half cosines, then half sines. sign -1 rotates back.
template <class T>
void rotate_row(T* to, const float* row, const float* angles, int64_t heads, int64_t half, float sign) {
  const int64_t rest = rotate_pairs(Tag(), to, row, angles, heads, half, 0, sign);
  rotate_pairs(hn::CappedTag<float, 1>(), to, row, angles, heads, half, rest, sign);
}

}  // namespace

void rotate(Stored y, CF32 x, CI32 position, CF32 table, int64_t heads, float sign) {
  const int64_t half = table.cols() / 2, rotated = heads * table.cols();
  const bool in_place = static_cast<const void*>(y.data) == x.data;
  with_format(y, [&](auto to) {
    parallel_for(x.rows(), row_grain(x.cols()), [&](int64_t s) HWY_ATTR {
      auto* at_row = to.row(s);
      const float* from = x.row(s);
      rotate_row(at_row, from, table.row(position[s]), heads, half, sign);
      if (in_place) return;
      for_vectors(x.cols() - rotated,
                  [&](auto at, int64_t i) HWY_ATTR { at.store(at.load(from + rotated + i), at_row + rotated + i); });
    });
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(rotate);

namespace cpu {

void rope_table(F32 table, double theta) {
  const int64_t half = table.cols() / 2;
  parallel_for(table.rows(), 64, [&](int64_t t) {
    for (int64_t i = 0; i < half; i++) {
      const double angle = double(t) * std::pow(theta, -double(i) / double(half));
      table.row(t)[i] = float(std::cos(angle));
      table.row(t)[half + i] = float(std::sin(angle));
    }
  });
}

void rope_forward(Stored y, CF32 x, CI32 position, CF32 table, int64_t heads) {
  HWY_DYNAMIC_DISPATCH(rotate)(y, x, position, table, heads, 1);
}

void rope_backward(F32 dx, CI32 position, CF32 table, int64_t heads) {
  HWY_DYNAMIC_DISPATCH(rotate)(dx, dx, position, table, heads, -1);
}

}  // namespace cpu
}  // namespace isobath
#endif  // HWY_ONCE
