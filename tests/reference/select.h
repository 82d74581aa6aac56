// The k rows of a sequence with the largest score, by the definition: sort, ties to the earlier row.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace isobath::reference {

inline std::vector<int32_t> top_k(const std::vector<float>& score, int32_t begin, int32_t end, int64_t k) {
  std::vector<int32_t> rows(size_t(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) { return score[size_t(a)] > score[size_t(b)]; });
  rows.resize(size_t(k));
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace isobath::reference
