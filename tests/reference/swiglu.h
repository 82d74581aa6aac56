// Shazeer 2020, arXiv:2002.05202: rows of F gate values and F up values.
#pragma once

#include <cmath>
#include <vector>

namespace isobath::reference {

template <class T>
std::vector<T> swiglu(const std::vector<T>& uv, size_t F) {
  using std::exp;
  std::vector<T> h(uv.size() / 2);
  for (size_t s = 0; s < h.size() / F; s++)
    for (size_t f = 0; f < F; f++) {
      const T u = uv[s * 2 * F + f], v = uv[s * 2 * F + F + f];
      h[s * F + f] = u / (1.0 + exp(-u)) * v;
    }
  return h;
}

}  // namespace isobath::reference
