#include "ops/kv_pages.h"

#include <algorithm>
#include <cstring>

namespace isobath {
namespace {

template <class T>
void write_row(const KvPages& pages, int32_t page, int64_t row, const float* key, const float* value) {
  const int64_t K = pages.K;
  for (int64_t g = 0; g < pages.G; g++) {
    T* keys = pages.keys<T>(page, g) + row;
    for (int64_t k = 0; k < K; k++) keys[k * kPageRows] = to_stored<T>(key[g * K + k]);
    std::transform(value + g * K, value + (g + 1) * K, pages.values<T>(page, g) + row * K, to_stored<T>);
  }
}

}  // namespace

void write_kv_row(const KvPages& pages, int32_t page, int64_t row, int32_t position, const float* key,
                  const float* value) {
  pages.storage == Storage::kF32 ? write_row<float>(pages, page, row, key, value)
                                 : write_row<Bf16>(pages, page, row, key, value);
  pages.position(page)[row] = position;
}

// All of the keys: the rows behind stand between the others, and mean nothing.
void copy_kv_rows(const KvPages& pages, int32_t to, int32_t from, int64_t rows) {
  std::memcpy(pages.at(to), pages.at(from), size_t(pages.half_bytes()));
  const int64_t row_bytes = pages.K * pages.item_bytes();
  for (int64_t g = 0; g < pages.G; g++) {
    const int64_t offset = pages.half_bytes() + g * kPageRows * row_bytes;
    std::memcpy(pages.at(to) + offset, pages.at(from) + offset, size_t(rows * row_bytes));
  }
  std::copy_n(pages.position(from), rows, pages.position(to));
}

}  // namespace isobath
