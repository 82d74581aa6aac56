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
std::vector<T> router_score_normed(const std::vector<T>& x, const std::vector<T>& w, T b, double eps) {
  using std::sqrt;
  const size_t D = w.size();
  std::vector<T> r(x.size() / D);
  for (size_t n = 0; n < r.size(); n++) {
    T dot = 0, squares = 0;
    for (size_t d = 0; d < D; d++) dot += x[n * D + d] * w[d], squares += x[n * D + d] * x[n * D + d];
    r[n] = dot / sqrt(squares / double(D) + eps) + b;
  }
  return r;
}

template <class T>
T gate(T r, Gate kind) {
  using std::exp, std::tanh;
  if (kind == Gate::kSigmoid) return 1.0 / (1.0 + exp(-r));
  return kind == Gate::kTanh ? tanh(r) : r;
}

}  // namespace isobath::reference
