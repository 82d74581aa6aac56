// Threads. One parallel region per call, no nesting; OpenMP where the build has it, one thread where it has not.
//
// Work items are independent and are cut the same way for any number of threads, so results have the same bits for
// 1, 2 or 64 of them. Sums over rows are cut into kGradChunks fixed pieces and combined in order (see chunk_of).
#pragma once

#include <algorithm>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace isobath {

#ifdef _OPENMP
inline int thread_count() { return omp_get_max_threads(); }
inline void set_thread_count(int n) { omp_set_num_threads(n); }
#else
inline int thread_count() { return 1; }
inline void set_thread_count(int) {}
#endif

// f(i) for i in [0, n), contiguous runs of i per thread: for items of equal cost.
// Under `grain` items the calling thread does them alone: a fork costs some microseconds.
template <class F>
void parallel_for(int64_t n, int64_t grain, F f) {
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (n > grain)
#endif
  for (int64_t i = 0; i < n; i++) f(i);
  (void)grain;
}

// The same for items of unequal cost: the next free thread takes the next item.
template <class F>
void parallel_tasks(int64_t n, F f) {
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) if (n > 1)
#endif
  for (int64_t i = 0; i < n; i++) f(i);
}

// Gradients that are sums over rows: the rows are cut into this many fixed chunks, each summed by one thread into its
// own partial, and the partials are added in order of the chunk.
inline constexpr int64_t kGradChunks = 32;

struct Range {
  int64_t begin, end;
};
inline Range chunk_of(int64_t n, int64_t chunk, int64_t chunks = kGradChunks) {
  return {n * chunk / chunks, n * (chunk + 1) / chunks};
}

}  // namespace isobath
