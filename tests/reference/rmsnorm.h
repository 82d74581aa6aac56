// Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4, rows of D.
#pragma once

#include <cmath>
#include <vector>

namespace isobath::reference {

template <class T>
std::vector<T> rmsnorm(const std::vector<T>& z, const std::vector<T>& weight, double eps) {
  using std::sqrt;
  const size_t D = weight.size();
  std::vector<T> y(z.size());
  for (size_t begin = 0; begin < z.size(); begin += D) {
    T squares = 0;
    for (size_t d = 0; d < D; d++) squares += z[begin + d] * z[begin + d];
    for (size_t d = 0; d < D; d++) y[begin + d] = z[begin + d] / sqrt(squares / double(D) + eps) * weight[d];
  }
  return y;
}

}  // namespace isobath::reference
