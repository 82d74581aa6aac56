// Raposo et al. 2024, arXiv:2404.02258, section 3.4: a row's router weight, and the gate.
#pragma once

#include <cmath>
#include <vector>

#include "ops/router.h"

namespace isobath::reference {

template <class T>
std::vector<T> router_score(const std::vector<T>& x, const std::vector<T>& w, T b) {
  std::vector<T> r(x.size() / w.size(), b);
  for (size_t i = 0; i < x.size(); i++) r[i / w.size()] += x[i] * w[i % w.size()];
  return r;
}

template <class T>
T gate(T r, Gate kind) {
  using std::exp, std::tanh;
  if (kind == Gate::kSigmoid) return 1.0 / (1.0 + exp(-r));
  return kind == Gate::kTanh ? tanh(r) : r;
}

}  // namespace isobath::reference
