// What FrozenLinear rounds weights and rows to, and its int8 product, in the plainest form.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace isobath::reference {

// The nearest number with 8 significant bits, ties to even; for values that are neither tiny nor huge.
inline double to_bf16(double value) {
  if (value == 0) return 0;
  int exponent;
  const double fraction = std::frexp(value, &exponent);  // 0.5 <= |fraction| < 1
  return std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
}

// Rows of values as integers times the scale of their group of 32.
struct Quantized {
  std::vector<int64_t> code;  // (rows, K)
  std::vector<double> scale;  // (rows, groups)
};

// scale_of(largest) is the scale of a group, divide(value, scale, largest) the code before rounding.
template <class ScaleOf, class Divide>
Quantized quantize(const std::vector<float>& values, int64_t rows, int64_t K, ScaleOf scale_of, Divide divide) {
  Quantized q;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t k0 = 0; k0 < K; k0 += 32) {
      float largest = 0;
      for (int64_t k = k0; k < std::min(K, k0 + 32); k++)
        largest = std::max(largest, std::abs(values[size_t(r * K + k)]));
      const float scale = scale_of(largest);
      q.scale.push_back(double(scale));
      for (int64_t k = k0; k < std::min(K, k0 + 32); k++)
        q.code.push_back(largest == 0 ? 0 : std::lrint(divide(values[size_t(r * K + k)], scale, largest)));
    }
  return q;
}

inline Quantized quantize_weights(const std::vector<float>& W, int64_t N, int64_t K) {
  const auto scale_of = [](float largest) {  // rounded up to 8 significant bits
    if (largest == 0) return 0.0f;
    int exponent;
    const double fraction = std::frexp(double(largest / 127), &exponent);
    return float(std::ldexp(std::ceil(std::ldexp(fraction, 8)), exponent - 8));
  };
  return quantize(W, N, K, scale_of, [](float w, float scale, float) { return w / scale; });
}

inline Quantized quantize_rows(const std::vector<float>& x, int64_t M, int64_t K) {
  return quantize(
      x, M, K, [](float largest) { return largest / 127; },
      [](float v, float, float largest) { return v * (127 / largest); });
}

// y (M,N), and into `terms` the sum of the |summands| of each element.
inline std::vector<double> quantized_product(const Quantized& x, const Quantized& W, int64_t M, int64_t N, int64_t K,
                                             std::vector<double>& terms) {
  const int64_t G = (K + 31) / 32;
  std::vector<double> y;
  terms.clear();
  for (int64_t m = 0; m < M; m++)
    for (int64_t n = 0; n < N; n++) {
      double sum = 0, size = 0;
      for (int64_t g = 0; g < G; g++) {
        int64_t dot = 0;
        for (int64_t k = 32 * g; k < std::min(K, 32 * g + 32); k++)
          dot += x.code[size_t(m * K + k)] * W.code[size_t(n * K + k)];
        const double term = double(dot) * x.scale[size_t(m * G + g)] * W.scale[size_t(n * G + g)];
        sum += term;
        size += std::abs(term);
      }
      y.push_back(sum);
      terms.push_back(size);
    }
  return y;
}

}  // namespace isobath::reference
