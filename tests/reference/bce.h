// Binary cross-entropy on a logit, as in ops/bce.h, templated on the scalar.
#pragma once

#include <cmath>
#include <complex>

namespace isobath::reference {

// softplus(r) - target r
template <class T>
T bce_with_logit(T r, double target) {
  const T softplus = std::real(r) > 0 ? r + std::log(1.0 + std::exp(-r)) : std::log(1.0 + std::exp(r));
  return softplus - target * r;
}

}  // namespace isobath::reference
