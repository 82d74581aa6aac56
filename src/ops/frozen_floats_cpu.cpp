// FrozenLinear's kernels for fp32 and bf16 weights: one running sum per element of a block.
#include "base/simd.h"
#include "ops/frozen_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/frozen_floats_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/frozen_strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::frozen::HWY_NAMESPACE {

// The vectors of one k.
struct Floats {
  static constexpr int64_t kStepBytes = kPanel * 4;
  template <int V>
  static HWY_INLINE void load(Vec (&w)[V], const std::byte* step, int64_t word) {
#pragma GCC unroll 16
    for (int v = 0; v < V; v++) w[v] = hn::Load(Tag(), reinterpret_cast<const float*>(step) + column<V>(word, v));
  }
};
struct Bf16s {
  static constexpr int64_t kStepBytes = kPanel * 2;
  template <int V>
  static HWY_INLINE void load(Vec (&w)[V], const std::byte* step, int64_t word) {
    load_pairs<V>(w, step, word);
  }
};

template <class Format>
struct FloatStrip {
  static constexpr int kRegisters = HWY_NAMESPACE::kRegisters;

  template <int R, int V>
  static HWY_INLINE void run(const Block& block, int64_t word) {
    Vec sum[R][V];
    set_zero<R, V>(sum);
    const std::byte* step = block.weights;
    Rows<R> x(block.x, block.x_row);
    const bool ask = block.ask_ahead && word == 0;
    for (int64_t k = block.steps; k > 0; k--, step += Format::kStepBytes) {
      if (ask) ask_ahead<Format::kStepBytes>(step);
      Vec w[V];
      Format::template load<V>(w, step, word);
      if constexpr (R > 1)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++) keep(w[v]);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const Vec xr = hn::Set(Tag(), x.template at<float>(r));
#pragma GCC unroll 16
        for (int v = 0; v < V; v++) sum[r][v] = hn::MulAdd(w[v], xr, sum[r][v]);
      }
      x.advance(sizeof(float));
    }
    if (!block.first)
      for_columns<R, V>(block, word, sum,
                        [](auto at, const float* y, Vec v) HWY_ATTR { return hn::Add(at.load(y), v); });
    store_y<R, V>(block, word, sum);
  }
};

void block_f32(const Block& block) { run_block<FloatStrip<Floats>>(block); }
void block_bf16(const Block& block) { run_block<FloatStrip<Bf16s>>(block); }

int64_t most_rows(WeightFormat format) {
  return rows_held(format == WeightFormat::kInt8 ? kRegisters / 2 : kRegisters);
}

}  // namespace isobath::frozen::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::frozen {
HWY_EXPORT(block_f32);
HWY_EXPORT(block_bf16);
HWY_EXPORT(most_rows);

namespace cpu {
void block_f32(const Block& block) { HWY_DYNAMIC_DISPATCH(block_f32)(block); }
void block_bf16(const Block& block) { HWY_DYNAMIC_DISPATCH(block_bf16)(block); }
int64_t most_rows(WeightFormat format) { return HWY_DYNAMIC_DISPATCH(most_rows)(format); }
}  // namespace cpu
}  // namespace isobath::frozen
#endif
