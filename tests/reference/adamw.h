// Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2, one element; g is the gradient after clipping.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/adamw.h"

namespace isobath::reference {

struct AdamState {
  double w, m, v;
};

inline AdamState adamw(AdamState s, double g, const AdamW& o, int64_t t) {
  s.m = double(o.beta1) * s.m + (1 - double(o.beta1)) * g;
  s.v = double(o.beta2) * s.v + (1 - double(o.beta2)) * g * g;
  const double mean = s.m / (1 - std::pow(double(o.beta1), double(t)));
  const double square = s.v / (1 - std::pow(double(o.beta2), double(t)));
  s.w -= double(o.lr) * (mean / (std::sqrt(square) + double(o.eps)) + double(o.weight_decay) * s.w);
  return s;
}

}  // namespace isobath::reference
