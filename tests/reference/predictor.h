// The predictor behind its first product, as in ops/predictor.h, templated on the scalar.
#pragma once

#include <cmath>
#include <complex>
#include <vector>

namespace isobath::reference {

// p = <silu(u + b1), w2> + b2 of one row.
template <class T>
T predictor(const std::vector<T>& u, const std::vector<T>& b1, const std::vector<T>& w2, T b2) {
  T p = b2;
  for (size_t i = 0; i < u.size(); i++) {
    const T v = u[i] + b1[i];
    p += v / (1.0 + std::exp(-v)) * w2[i];
  }
  return p;
}

}  // namespace isobath::reference
