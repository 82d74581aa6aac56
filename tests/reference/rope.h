// The formula of ops/rope.h in float64, angles computed in place of the table.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace isobath::reference {

template <class T>
std::vector<T> rope(std::vector<T> x, const std::vector<int32_t>& position, int64_t heads, int64_t K, double theta) {
  const int64_t row = int64_t(x.size() / position.size());
  for (size_t s = 0; s < position.size(); s++)
    for (int64_t h = 0; h < heads; h++)
      for (int64_t i = 0; i < K / 2; i++) {
        const double angle = position[s] * std::pow(theta, -2.0 * double(i) / double(K));
        T& first = x[s * size_t(row) + size_t(h * K + i)];
        T& second = x[s * size_t(row) + size_t(h * K + i + K / 2)];
        const T u = first, v = second;
        first = u * std::cos(angle) - v * std::sin(angle);
        second = v * std::cos(angle) + u * std::sin(angle);
      }
  return x;
}

}  // namespace isobath::reference
