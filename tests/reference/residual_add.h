// x[index[s]] + gate[s] * (a[s] + m[s]), rows of D.
#pragma once

#include <cstdint>
#include <vector>

namespace isobath::reference {

template <class T>
std::vector<T> residual_add(std::vector<T> x, const std::vector<int32_t>& index, const std::vector<T>& gate,
                            const std::vector<T>& a, const std::vector<T>& m) {
  const size_t D = index.empty() ? 1 : a.size() / index.size();
  for (size_t s = 0; s < index.size(); s++)
    for (size_t d = 0; d < D; d++) x[size_t(index[s]) * D + d] += gate[s] * (a[s * D + d] + m[s * D + d]);
  return x;
}

}  // namespace isobath::reference
