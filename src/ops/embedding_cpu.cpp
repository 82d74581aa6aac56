#include "base/simd.h"
#include "ops/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/embedding_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::HWY_NAMESPACE {

// Threads share the columns, so that each element of dtable is added to by one thread in ascending n, however often a
// token occurs. The cut may follow the number of threads: it moves no addition.
void embedding_backward(Accum dtable, CF32 dx, CI32 token) {
  constexpr int64_t kCacheLine = 16;
  const int64_t N = dx.rows(), D = dx.cols(), lines = (D + kCacheLine - 1) / kCacheLine;
  const int64_t parts = N > row_grain(D) ? std::min<int64_t>(thread_count(), lines) : 1;
  parallel_for(parts, 1, [&](int64_t part) HWY_ATTR {
    const Range line = chunk_of(lines, part, parts);
    const int64_t begin = line.begin * kCacheLine, count = std::min(line.end * kCacheLine, D) - begin;
    for (int64_t n = 0; n < N; n++) {
      float* to = dtable.view.row(token[n]) + begin;
      const float* from = dx.row(n) + begin;
      for_vectors(count,
                  [&](auto at, int64_t i) HWY_ATTR { at.store(hn::Add(at.load(to + i), at.load(from + i)), to + i); });
    }
  });
}

}  // namespace isobath::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath {
HWY_EXPORT(embedding_backward);

namespace cpu {

void embedding_forward(F32 x, CI32 token, CF32 table) {
  const size_t bytes = size_t(table.cols()) * sizeof(float);
  parallel_for(x.rows(), row_grain(x.cols()), [&](int64_t n) { std::memcpy(x.row(n), table.row(token[n]), bytes); });
}

void embedding_backward(Accum dtable, CF32 dx, CI32 token) {
  HWY_DYNAMIC_DISPATCH(embedding_backward)(dtable, dx, token);
}

}  // namespace cpu
}  // namespace isobath
#endif
