// What FrozenLinear's kernels share. A block's panel is cut into strips of as many vectors as the registers hold sums.
// Loops over a block's rows and vectors are unrolled: arrays live in registers only where no index is left.
// Highway includes this once per instruction set.
#include <utility>

#include "ops/frozen_weights.h"
#include "ops/rows-inl.h"

#if defined(ISOBATH_OPS_FROZEN_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ISOBATH_OPS_FROZEN_STRIPS_INL_H_
#undef ISOBATH_OPS_FROZEN_STRIPS_INL_H_
#else
#define ISOBATH_OPS_FROZEN_STRIPS_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace isobath::frozen::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using isobath::HWY_NAMESPACE::Part;
using isobath::HWY_NAMESPACE::Tag;
using isobath::HWY_NAMESPACE::Vec;
using isobath::HWY_NAMESPACE::Whole;
using WordTag = hn::Rebind<uint32_t, Tag>;

constexpr int64_t kLanes = int64_t(hn::MaxLanes(Tag()));

// With AVX-512 and NEON, and before.
constexpr int kRegisters = HWY_TARGET == HWY_AVX3 || HWY_ARCH_ARM ? 32 : 16;

// The most rows of a block whose kernel has so many registers for sums and weights: two vectors each, and some spare.
constexpr int rows_held(int registers) { return registers * 3 / 8; }

// Vectors of a strip for R rows: an even number that divides the panel's.
constexpr int vectors(int R, int registers) {
  int V = 2;
  while (2 * V * (R + 1) < registers && 2 * V * kLanes <= kPanel) V *= 2;
  return V;
}

// Keeps a vector that several rows use in a register: GCC would load it anew for each, as an operand.
HWY_INLINE void keep(Vec& v) {
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL
  asm("" : "+v"(v.raw));
#endif
}

// The panel's lines of one step, some 8 KB ahead, into the second-level cache. A hint may point past the end.
template <int64_t step_bytes>
HWY_INLINE void ask_ahead(const std::byte* step) {
  constexpr int64_t kAhead = 8192, kLine = 64;
  for (int64_t i = 0; i < step_bytes; i += kLine) __builtin_prefetch(step + kAhead + i, 0, 2);
}

// The place in a panel of vector v of a strip that begins at word `word`.
template <int V>
HWY_INLINE int64_t column(int64_t word, int v) {
  return v < V / 2 ? word + v * kLanes : kPanel / 2 + word + (v - V / 2) * kLanes;
}

// Words of two bf16: the low halves are values of the first half of the columns, the high halves of the other.
template <int V>
HWY_INLINE void load_pairs(Vec (&to)[V], const std::byte* from, int64_t word) {
#pragma GCC unroll 16
  for (int v = 0; v < V / 2; v++) {
    const auto words = hn::Load(WordTag(), reinterpret_cast<const uint32_t*>(from) + column<V>(word, v));
    to[v] = hn::BitCast(Tag(), hn::ShiftLeft<16>(words));
    to[v + V / 2] = hn::BitCast(Tag(), hn::And(words, hn::Set(WordTag(), 0xFFFF0000u)));
  }
}

// Rows of x, four to a pointer, so that twelve need no more registers than there are.
template <int R>
struct Rows {
  const std::byte* fourth[(R + 3) / 4];
  int64_t row;
  HWY_INLINE Rows(const void* x, int64_t row) : row(row) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r += 4) fourth[r / 4] = static_cast<const std::byte*>(x) + r * row;
  }
  template <class T>
  HWY_INLINE const T& at(int r) const {
    return *reinterpret_cast<const T*>(fourth[r / 4] + r % 4 * row);
  }
  HWY_INLINE void advance(int64_t bytes) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r += 4) {
      fourth[r / 4] += bytes;
#if HWY_ARCH_X86
      asm("" : "+r"(fourth[r / 4]));  // or the compiler makes a pointer of each row again
#endif
    }
  }
};

// Rows of y at the vectors of a strip that exist, whole or in part: value = f(at, address of y, value). Values are
// passed by value, as what a function has a reference to does not stay in registers.
template <int R, int V, class F>
HWY_INLINE void for_columns(const Block& block, int64_t word, Vec (&value)[R][V], F f) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    float* y = block.y + r * block.N;
#pragma GCC unroll 16
    for (int v = 0; v < V; v++) {
      const int64_t c = column<V>(word, v);
      if (c + kLanes <= block.width)
        value[r][v] = f(Whole(), y + c, value[r][v]);
      else if (c < block.width)
        value[r][v] = f(Part{block.width - c}, y + c, value[r][v]);
    }
  }
}
template <int R, int V>
HWY_INLINE void set_zero(Vec (&value)[R][V]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; r++)
#pragma GCC unroll 16
    for (int v = 0; v < V; v++) value[r][v] = hn::Zero(Tag());
}
template <int R, int V>
HWY_INLINE void load_y(const Block& block, int64_t word, Vec (&value)[R][V]) {
  for_columns<R, V>(block, word, value, [](auto at, const float* y, Vec) HWY_ATTR { return at.load(y); });
}
template <int R, int V>
HWY_INLINE void store_y(const Block& block, int64_t word, Vec (&value)[R][V]) {
  for_columns<R, V>(block, word, value, [](auto at, float* y, Vec v) HWY_ATTR {
    at.store(v, y);
    return v;
  });
}

// Strip::run<R, V>(block, word) for each strip of the panel, by the kernel made for the block's R.
template <class Strip, int R>
void all_strips(const Block& block) {
  constexpr int V = vectors(R, Strip::kRegisters);
  for (int64_t word = 0; word < kPanel / 2; word += V / 2 * kLanes) Strip::template run<R, V>(block, word);
}
template <class Strip, int... R>
HWY_INLINE void run_block(const Block& block, std::integer_sequence<int, R...>) {
  static constexpr void (*kOfRows[])(const Block&) = {&all_strips<Strip, R + 1>...};
  kOfRows[block.rows - 1](block);
}
template <class Strip>
HWY_INLINE void run_block(const Block& block) {
  run_block<Strip>(block, std::make_integer_sequence<int, rows_held(Strip::kRegisters)>());
}

}  // namespace isobath::frozen::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
