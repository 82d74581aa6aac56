// Comparing arrays in tests: tolerances follow the size of the terms, never of the result alone.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "tensor/view.h"

namespace isobath::testing {

// A vector that is also a view; outputs start as NaN so that an element nobody wrote is seen.
struct Buffer {
  std::vector<float> values;
  Shape shape;
  explicit Buffer(Shape s, float fill = std::numeric_limits<float>::quiet_NaN())
      : values(size_t(s.numel()), fill), shape(s) {}
  F32 view() { return {values.data(), shape}; }
  CF32 view() const { return {values.data(), shape}; }
  operator F32() { return view(); }
  operator CF32() const { return view(); }
  float& operator[](int64_t i) { return values[size_t(i)]; }
  float operator[](int64_t i) const { return values[size_t(i)]; }
};

// N(0, scale^2), a pure function of seed and place.
inline Buffer random_buffer(Shape shape, uint64_t seed, float scale = 1) {
  Buffer b(shape);
  const Rng rng(seed, Stream::kBench);
  for (int64_t i = 0; i < shape.numel(); i++) b[i] = scale * rng.normal(uint64_t(i));
  return b;
}

inline std::vector<double> to_double(const Buffer& b) { return {b.values.begin(), b.values.end()}; }

// |got - want| <= 8 eps * terms * sqrt(count), where `terms` bounds the magnitude of one summand and `count` is the
// number of summands. NaN never passes.
template <class Got, class Want>
void expect_close(const Got& got, const Want& want, double terms, double count, const char* what = "") {
  ASSERT_EQ(got.size(), want.size()) << what;
  const double tolerance = 8 * double(std::numeric_limits<float>::epsilon()) * terms * std::sqrt(std::max(1.0, count));
  for (size_t i = 0; i < got.size(); i++)
    ASSERT_LE(std::abs(double(got[i]) - double(want[i])), tolerance)
        << what << " [" << i << "]: got " << got[i] << ", want " << want[i];
}

inline void expect_same_bits(const float* a, const float* b, int64_t n, const char* what = "") {
  for (int64_t i = 0; i < n; i++)
    ASSERT_EQ(std::memcmp(a + i, b + i, sizeof(float)), 0) << what << " [" << i << "]: " << a[i] << " and " << b[i];
}
inline void expect_same_bits(const Buffer& a, const Buffer& b, const char* what = "") {
  ASSERT_EQ(a.values.size(), b.values.size()) << what;
  expect_same_bits(a.values.data(), b.values.data(), int64_t(a.values.size()), what);
}

inline double max_abs(const Buffer& b) {
  double m = 0;
  for (const float v : b.values) m = std::max(m, std::abs(double(v)));
  return m;
}

}  // namespace isobath::testing
