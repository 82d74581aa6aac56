// How threads go over a FrozenLinear's panels.
#include <algorithm>

#include "base/parallel.h"
#include "ops/frozen_weights.h"

namespace isobath::frozen {

namespace {

// Work under which a second thread costs more than it brings (a fork is some microseconds): bytes of weights, or
// multiply-adds.
constexpr int64_t kForkBytes = 1 << 18, kForkMultiplyAdds = 1 << 19;
// Rows whose x stays in the second-level cache beside a panel's chunk, and an int8 chunk that does so.
constexpr int64_t kTileRows = 120, kChunkGroups = 96;

// Rows from which on a block asks for weights ahead of time. Fewer rows read as fast as memory delivers, which the
// CPU's own reading ahead does best: asking only limits it to as many lines as the first-level cache waits for. With
// more rows, arithmetic between the lines keeps the CPU from seeing far enough.
int64_t asking_rows(WeightFormat format) { return format == WeightFormat::kF32 ? 8 : 4; }

// One block where the registers hold all rows. Several are of eight at most: more rows that lie a multiple of 4 KB
// apart do not stay in the first-level cache.
int64_t block_count(WeightFormat format, int64_t M) {
  const int64_t most = cpu::most_rows(format), of_several = std::min<int64_t>(most, 8);
  return M <= most ? 1 : (M + of_several - 1) / of_several;
}

class Walk {
 public:
  Walk(const Weights& weights, float* y, const float* x, const QuantizedGroup* q, int64_t M)
      : w_(weights), y_(y), x_(x), q_(q), M_(M), blocks_(block_count(weights.format, M)) {}

  int64_t units() const { return blocks_ * w_.panels(); }

  // Units [begin, end): unit u is block u % blocks of panel u / blocks.
  void go(int64_t begin, int64_t end) const {
    const int64_t tile = std::max<int64_t>(1, kTileRows * blocks_ / M_);
    for (int64_t b = 0; b < blocks_; b += tile)
      for (int64_t panel = begin / blocks_; panel * blocks_ < end; panel++) {
        const int64_t first = panel * blocks_;
        some_blocks(panel, {std::max(begin - first, b), std::min(end - first, std::min(blocks_, b + tile))});
      }
  }

 private:
  // Chunk by chunk: the first block reads it from memory, the others from the cache.
  void some_blocks(int64_t panel, Range blocks) const {
    const int64_t chunk = w_.grouped() ? kChunkGroups : w_.chain;
    for (int64_t step = 0; step < w_.steps(); step += chunk)
      for (int64_t b = blocks.begin; b < blocks.end; b++)
        one_block(panel, {step, std::min(w_.steps(), step + chunk)}, b, b == blocks.begin);
  }

  void one_block(int64_t panel, Range steps, int64_t b, bool reads_memory) const {
    const Range rows = chunk_of(M_, b, blocks_);
    const int64_t m = rows.begin, n = panel * kPanel;
    Block block{.y = y_ + m * w_.N + n,
                .N = w_.N,
                .rows = rows.end - m,
                .width = std::min(kPanel, w_.N - n),
                .x = nullptr,
                .q = nullptr,
                .x_row = w_.grouped() ? w_.steps() * int64_t(sizeof(QuantizedGroup)) : w_.K * int64_t(sizeof(float)),
                .weights = w_.data + panel * w_.panel_bytes() + steps.begin * w_.step_bytes(),
                .steps = steps.end - steps.begin,
                .first = steps.begin == 0,
                .ask_ahead = reads_memory && rows.end - m >= asking_rows(w_.format),
                .byte_dots = w_.byte_dots};
    if (w_.grouped())
      block.q = q_ + m * w_.steps() + steps.begin;
    else
      block.x = x_ + m * w_.K + steps.begin;
    switch (w_.format) {
      case WeightFormat::kF32:
        return cpu::block_f32(block);
      case WeightFormat::kBf16:
        return cpu::block_bf16(block);
      case WeightFormat::kInt8:
        return cpu::block_int8(block);
    }
  }

  const Weights& w_;
  float* y_;
  const float* x_;
  const QuantizedGroup* q_;
  int64_t M_, blocks_;
};

}  // namespace

void run(const Weights& weights, float* y, const float* x, const QuantizedGroup* q, int64_t M) {
  if (M == 0) return;
  const Walk walk(weights, y, x, q, M);
  const int64_t units = walk.units();
  const bool fork = weights.bytes() > kForkBytes || M * weights.N * weights.K > kForkMultiplyAdds;
  const int64_t threads = fork ? std::min<int64_t>(thread_count(), units) : 1;
  if (threads <= 1) return walk.go(0, units);  // a region of one thread costs 0.3 microseconds
  parallel_for(threads, 1, [&](int64_t thread) {
    const Range mine = chunk_of(units, thread, threads);
    walk.go(mine.begin, mine.end);
  });
}

}  // namespace isobath::frozen
