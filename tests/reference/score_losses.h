// Losses on router scores, as in ops/score_losses.h, templated on the scalar.
#pragma once

#include <cmath>
#include <complex>
#include <vector>

namespace isobath::reference {

template <class T>
T square_loss(const std::vector<T>& r) {
  T sum = 0;
  for (const T& score : r) sum += score * score;
  return sum;
}

// One run.
template <class T>
T balance_loss(const std::vector<T>& r, double capacity) {
  T mean = 0;
  for (const T& score : r) mean += 1.0 / (1.0 + std::exp(-score)) / double(r.size());
  return (mean - capacity) * (mean - capacity);
}

}  // namespace isobath::reference
