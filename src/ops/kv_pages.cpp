#include "ops/kv_pages.h"

#include <algorithm>
#include <cstring>

namespace isobath {
namespace {

template <class T>
void write_row(const KvPages& pages, int32_t page, int64_t row, const float* key, const float* value) {
  const int64_t K = pages.K;
  for (int64_t g = 0; g < pages.G; g++) {
    std::transform(key + g * K, key + (g + 1) * K, pages.keys<T>(page, g) + row * K, to_stored<T>);
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

void copy_kv_rows(const KvPages& pages, int32_t to, int32_t from, int64_t rows) {
  const int64_t head_bytes = pages.K * pages.item_bytes(), heads = 2 * pages.G;
  for (int64_t h = 0; h < heads; h++) {
    const int64_t offset = h * kPageRows * head_bytes;
    std::memcpy(pages.at(to) + offset, pages.at(from) + offset, size_t(rows * head_bytes));
  }
  std::copy_n(pages.position(from), rows, pages.position(to));
}

}  // namespace isobath
