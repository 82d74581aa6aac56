// A few thousand scalars per call: plain code in float64, no vectors.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "ops/bce.h"

namespace isobath::cpu {

namespace {

struct ChunkSum {
  double loss = 0;
  Agreement agreement;
};

ChunkSum bce_chunk(F32 dr, CF32 r, CI32 index, float scale, Range rows) {
  ChunkSum sum;
  const int32_t* const end = index.data + index.numel();
  const int32_t* next = std::lower_bound(index.data, end, rows.begin);  // the next row that top-k chose
  for (int64_t n = rows.begin; n < rows.end; n++) {
    const bool chosen = next != end && *next == n, said = r[n] > 0;
    next += chosen;
    sum.agreement += {.rows = 1, .chosen = chosen, .said = said, .both = chosen && said};
    // softplus and sigmoid by exp(-|r|), which cannot overflow. Of a logit that is not finite, target * x is NaN.
    const double x = r[n];
    const double e = std::exp(-std::abs(x)), target = chosen;
    sum.loss += std::max(x, 0.0) + std::log1p(e) - target * x;
    if (!dr.empty()) dr[n] += float(scale * ((x >= 0 ? 1 : e) / (1 + e) - target));
  }
  return sum;
}

}  // namespace

double bce_with_logits(Accum dr, Agreement& agreement, CF32 r, CI32 index, float scale) {
  std::array<ChunkSum, size_t(kGradChunks)> chunks;
  constexpr int64_t kWorthThreads = 1024;
  parallel_for(kGradChunks, r.numel() < kWorthThreads ? kGradChunks : 0, [&](int64_t chunk) {
    chunks[size_t(chunk)] = bce_chunk(dr.view, r, index, scale, chunk_of(r.numel(), chunk));
  });
  ChunkSum sum;
  for (const ChunkSum& chunk : chunks) sum.loss += chunk.loss, sum.agreement += chunk.agreement;
  agreement = sum.agreement;
  return sum.loss;
}

}  // namespace isobath::cpu
