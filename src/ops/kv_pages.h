// Keys and values of past tokens, in pages of a few rows each, fp32 or bf16. Which pages belong together, and in which
// order, is said by tables of page numbers; nothing here owns or counts pages.
//
// A page is   keys (G, K, kPageRows)   values (G, kPageRows, K)   positions (kPageRows) of int32
// so that attention of one query multiplies a number of it with those of 16 keys at once, and sums values row by row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/stored.h"

namespace isobath {

inline constexpr int64_t kPageRows = 16;

// How many pages hold so many rows.
inline int64_t pages_for(int64_t rows) { return (rows + kPageRows - 1) / kPageRows; }

struct KvPages {
  std::byte* data = nullptr;  // (pages, page_bytes())
  int64_t G = 0, K = 0;       // key/value heads and their size
  Storage storage = Storage::kF32;

  int64_t item_bytes() const { return storage == Storage::kF32 ? 4 : 2; }
  int64_t half_bytes() const { return kPageRows * G * K * item_bytes(); }  // the keys, or the values, of a page
  int64_t row_bytes() const { return 2 * G * K * item_bytes(); }           // key and value of one token
  // In whole cache lines.
  int64_t page_bytes() const { return (2 * half_bytes() + kPageRows * int64_t(sizeof(int32_t)) + 63) / 64 * 64; }

  std::byte* at(int32_t page) const { return data + page * page_bytes(); }
  int32_t* position(int32_t page) const { return reinterpret_cast<int32_t*>(at(page) + 2 * half_bytes()); }
  // Of head g, (K, kPageRows) and (kPageRows, K). T is that of `storage`.
  template <class T>
  T* keys(int32_t page, int64_t g) const {
    return reinterpret_cast<T*>(at(page)) + g * kPageRows * K;
  }
  template <class T>
  T* values(int32_t page, int64_t g) const {
    return reinterpret_cast<T*>(at(page) + half_bytes()) + g * kPageRows * K;
  }
};

// Writes row `row` of a page: key and value (G*K), rounded to the pages' format, and the token's position.
void write_kv_row(const KvPages& pages, int32_t page, int64_t row, int32_t position, const float* key,
                  const float* value);
// Copies the first `rows` rows of one page to another.
void copy_kv_rows(const KvPages& pages, int32_t to, int32_t from, int64_t rows);

}  // namespace isobath
