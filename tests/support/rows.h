// What tests of ops on lists of rows share: lists, numbers of threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>
#include <vector>

#include "base/parallel.h"
#include "base/rng.h"
#include "tensor/view.h"

namespace isobath::testing {

// A list of int32 that is also a view.
struct List {
  std::vector<int32_t> values;
  List(std::initializer_list<int32_t> v) : values(v) {}
  explicit List(int64_t n, int32_t fill = -1) : values(size_t(n), fill) {}
  operator I32() { return {values.data(), {int64_t(values.size())}}; }
  operator CI32() const { return {values.data(), {int64_t(values.size())}}; }
  int32_t& operator[](int64_t i) { return values[size_t(i)]; }
  int32_t operator[](int64_t i) const { return values[size_t(i)]; }
  int64_t size() const { return int64_t(values.size()); }
};

// `count` of `rows` rows, ascending, a pure function of the seed.
inline List random_rows(int64_t count, int64_t rows, uint64_t seed) {
  const Rng rng(seed, Stream::kBench);
  List all(rows);
  std::iota(all.values.begin(), all.values.end(), 0);
  for (int64_t i = 0; i < count; i++) std::swap(all[i], all[i + rng.below(rows - i, uint64_t(i))]);
  all.values.resize(size_t(count));
  std::sort(all.values.begin(), all.values.end());
  return all;
}

// Runs f with `n` threads.
template <class F>
auto with_threads(int n, F f) {
  struct Restore {
    int before = thread_count();
    ~Restore() { set_thread_count(before); }
  } restore;
  set_thread_count(n);
  return f();
}

}  // namespace isobath::testing
