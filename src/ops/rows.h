// What ops on lists of rows share: checks of their arguments (a pass over the list at most, never over the rows
// themselves), and when threads pay. The vector loops are in rows-inl.h.
#pragma once

#include <algorithm>

#include "base/error.h"
#include "tensor/view.h"

namespace isobath {

// Rows under which one thread is faster than a fork: some 16 thousand elements.
inline int64_t row_grain(int64_t cols) { return (int64_t(1) << 14) / std::max<int64_t>(1, cols); }

template <class View>
void require_shape(const char* op, const char* name, const View& found, Shape expected) {
  require(found.shape == expected, "{}: {} has shape {}, expected {}", op, name, found.shape, expected);
}

// Every entry of a list lies in [0, limit): "token", "vocabulary entries".
inline void require_in_range(const char* op, const char* name, CI32 list, int64_t limit, const char* unit) {
  bool ok = true;
  for (int64_t i = 0; i < list.numel(); i++) ok &= list[i] >= 0 && list[i] < limit;
  if (ok) return;
  for (int64_t i = 0; i < list.numel(); i++)
    require(list[i] >= 0 && list[i] < limit, "{}: {}[{}] is {}, but there are {} {}; expected 0 to {}", op, name, i,
            list[i], limit, unit, limit - 1);
}

// A list of rows that are read: `count` entries in [0, rows), or left out (row s is entry s).
inline void require_rows(const char* op, CI32 index, int64_t count, int64_t rows) {
  if (index.empty()) {
    require(count <= rows, "{}: {} rows listed of {}, without an index; give the index", op, count, rows);
    return;
  }
  require_shape(op, "index", index, {count});
  require_in_range(op, "index", index, rows, "rows");
}

// A list of rows that are written: ascending as well, so that no two threads write one row.
inline void require_ascending_rows(const char* op, CI32 index, int64_t count, int64_t rows) {
  require_rows(op, index, count, rows);
  if (index.empty()) return;
  bool ok = true;
  for (int64_t s = 1; s < count; s++) ok &= index[s - 1] < index[s];
  if (ok) return;
  for (int64_t s = 1; s < count; s++)
    require(index[s - 1] < index[s], "{}: index[{}] is {} after {}; rows must be listed once each, ascending", op, s,
            index[s], index[s - 1]);
}

}  // namespace isobath
