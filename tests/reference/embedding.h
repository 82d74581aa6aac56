// x[n] = table[token[n]], rows of D.
#pragma once

#include <cstdint>
#include <vector>

namespace isobath::reference {

template <class T>
std::vector<T> embedding(const std::vector<T>& table, const std::vector<int32_t>& token, size_t D) {
  std::vector<T> x;
  for (const int32_t t : token)
    x.insert(x.end(), table.begin() + int64_t(t) * int64_t(D), table.begin() + int64_t(t + 1) * int64_t(D));
  return x;
}

}  // namespace isobath::reference
