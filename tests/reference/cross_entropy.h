// Cross-entropy of one row of logits, as in ops/cross_entropy.h, templated on the scalar.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

namespace isobath::reference {

// log sum_v exp(z[v]); the shift is a constant of the row, so that derivatives pass through.
template <class T>
T log_sum_exp(const std::vector<T>& z) {
  double shift = std::real(z[0]);
  for (const T& v : z) shift = std::max(shift, std::real(v));
  T sum = 0;
  for (const T& v : z) sum += std::exp(v - shift);
  return shift + std::log(sum);
}

template <class T>
T cross_entropy(const std::vector<T>& z, size_t target) {
  return log_sum_exp(z) - z[target];
}

template <class T>
T softmax_entropy(const std::vector<T>& z) {
  const T lse = log_sum_exp(z);
  T mean = 0;
  for (const T& v : z) mean += std::exp(v - lse) * v;
  return lse - mean;
}

}  // namespace isobath::reference
