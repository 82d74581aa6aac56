// Losses on router scores, as in ops/score_losses.h, templated on the scalar.
#pragma once

#include <vector>

namespace isobath::reference {

template <class T>
T square_loss(const std::vector<T>& r) {
  T sum = 0;
  for (const T& score : r) sum += score * score;
  return sum;
}

}  // namespace isobath::reference
