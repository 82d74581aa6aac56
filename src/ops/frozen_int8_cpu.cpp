// FrozenLinear's kernel for int8 weights: exact sums of a group's products, scaled and added group by group.
#include "base/simd.h"
#include "ops/frozen_weights.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/frozen_int8_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include <cstring>

#include "base/parallel.h"
#include "ops/frozen_strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace isobath::frozen::HWY_NAMESPACE {

using IntTag = hn::Rebind<int32_t, Tag>;
using Ints = hn::Vec<IntTag>;

// How a set of instructions adds the products of words' four bytes, those of w unsigned, those of x signed; exact.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// The instruction made for it, which these sets of Highway have not. As text, because a check at run time decides
// whether it may be used; beside AVX2 it is an instruction of its own, with the older kind of prefix.
struct ByteDots {
  struct Bytes {
    Ints words;
  };
  static HWY_INLINE Bytes of_weights(Ints w) { return {w}; }
  static HWY_INLINE Bytes of_x(Ints x) { return {x}; }
  static HWY_INLINE Ints add(Ints sum, Bytes w, Bytes x) {
#if HWY_TARGET == HWY_AVX3
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.words.raw), "v"(x.words.raw));
#else
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(w.words.raw), "x"(x.words.raw));
#endif
    return sum;
  }
};

// Pairs of 16 bits, whose products one instruction adds.
struct WidenedDots {
  using ShortTag = hn::Repartition<int16_t, IntTag>;
  struct Pairs {
    Ints even, odd;
  };
  static HWY_INLINE Pairs of_weights(Ints w) {
    const auto pairs = hn::BitCast(hn::RebindToUnsigned<ShortTag>(), w);
    return {hn::And(w, hn::Set(IntTag(), 0x00FF00FF)), hn::BitCast(IntTag(), hn::ShiftRight<8>(pairs))};
  }
  static HWY_INLINE Pairs of_x(Ints x) {
    const auto pairs = hn::BitCast(ShortTag(), x);
    return {hn::BitCast(IntTag(), hn::ShiftRight<8>(hn::ShiftLeft<8>(pairs))),
            hn::BitCast(IntTag(), hn::ShiftRight<8>(pairs))};
  }
  static HWY_INLINE Ints multiply(Ints a, Ints b) {
#if HWY_TARGET == HWY_AVX3
    return Ints{_mm512_madd_epi16(a.raw, b.raw)};
#else
    return Ints{_mm256_madd_epi16(a.raw, b.raw)};
#endif
  }
  static HWY_INLINE Ints add(Ints sum, Pairs w, Pairs x) {
    return hn::Add(sum, hn::Add(multiply(w.even, x.even), multiply(w.odd, x.odd)));
  }
};
#else
// Words of 32 bits.
struct WidenedDots {
  // Constructors that nobody declares are compiled without NEON's attributes, and cannot take its vectors in.
  struct Fours {
    HWY_INLINE Fours() {}
    HWY_INLINE Fours(Ints a, Ints b, Ints c, Ints d) : a(a), b(b), c(c), d(d) {}
    Ints a, b, c, d;
  };
  static HWY_INLINE Fours of_weights(Ints w) {
    const Ints low = hn::Set(IntTag(), 0xFF);
    return {hn::And(w, low), hn::And(hn::ShiftRight<8>(w), low), hn::And(hn::ShiftRight<16>(w), low),
            hn::And(hn::ShiftRight<24>(w), low)};
  }
  static HWY_INLINE Fours of_x(Ints x) {
    return {hn::ShiftRight<24>(hn::ShiftLeft<24>(x)), hn::ShiftRight<24>(hn::ShiftLeft<16>(x)),
            hn::ShiftRight<24>(hn::ShiftLeft<8>(x)), hn::ShiftRight<24>(x)};
  }
  static HWY_INLINE Ints add(Ints sum, const Fours& w, const Fours& x) {
    const Ints first = hn::Add(hn::Mul(w.a, x.a), hn::Mul(w.b, x.b));
    return hn::Add(sum, hn::Add(first, hn::Add(hn::Mul(w.c, x.c), hn::Mul(w.d, x.d))));
  }
};
#endif

HWY_INLINE Ints four_codes(const QuantizedGroup& group, int64_t k) {
  int32_t word;
  std::memcpy(&word, group.code + k, sizeof word);
  return hn::Set(IntTag(), word);
}

template <class Dots>
struct Int8Strip {
  static constexpr int kRegisters = HWY_NAMESPACE::kRegisters / 2;  // the others are for sums of one group

  template <int R, int V>
  static HWY_INLINE void run(const Block& block, int64_t word) {
    Vec sum[R][V];
    set_zero<R, V>(sum);
    if (!block.first) load_y<R, V>(block, word, sum);
    const std::byte* step = block.weights;
    Rows<R> x(block.q, block.x_row);
    const bool ask = block.ask_ahead && word == 0;
    for (int64_t g = block.steps; g > 0; g--, step += kGroupBytes) {
      if (ask) ask_ahead<kGroupBytes>(step);
      Ints dot[R][V];
      dots<R, V>(dot, reinterpret_cast<const int32_t*>(step + 2 * kPanel), x, word);
      Vec scale[V];
      load_pairs<V>(scale, step, word);
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const Vec scale_x = hn::Set(Tag(), x.template at<QuantizedGroup>(r).scale);
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
          sum[r][v] = hn::MulAdd(hn::ConvertTo(Tag(), dot[r][v]), hn::Mul(scale_x, scale[v]), sum[r][v]);
      }
      x.advance(sizeof(QuantizedGroup));
    }
    store_y<R, V>(block, word, sum);
  }

  template <int R, int V>
  static HWY_INLINE void dots(Ints (&dot)[R][V], const int32_t* codes, const Rows<R>& x, int64_t word) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
      for (int v = 0; v < V; v++) dot[r][v] = hn::Set(IntTag(), x.template at<QuantizedGroup>(r).start);
#pragma GCC unroll 16
    for (int64_t k = 0; k < kGroup; k += 4) {
      decltype(Dots::of_weights(Ints{})) w[V];
#pragma GCC unroll 16
      for (int v = 0; v < V; v++)
        w[v] = Dots::of_weights(hn::Load(IntTag(), codes + k / 4 * kPanel + column<V>(word, v)));
#pragma GCC unroll 16
      for (int r = 0; r < R; r++) {
        const auto xr = Dots::of_x(four_codes(x.template at<QuantizedGroup>(r), k));
#pragma GCC unroll 16
        for (int v = 0; v < V; v++) dot[r][v] = Dots::add(dot[r][v], w[v], xr);
      }
    }
  }
};

bool has_byte_dots() {
#if HWY_TARGET == HWY_AVX3
  return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;  // Highway asks for it there; no kernel of ours needs the rest
#elif HWY_TARGET == HWY_AVX2
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & 1 << 4) != 0;  // AVX-VNNI
#else
  return false;
#endif
}

void block_int8(const Block& block) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if (block.byte_dots) return run_block<Int8Strip<ByteDots>>(block);
#endif
  run_block<Int8Strip<WidenedDots>>(block);
}

// 32 values, zeros at the end.
HWY_INLINE void quantize_group(QuantizedGroup& q, const float* x) {
  Vec most = hn::Zero(Tag()), unsound = most;
#pragma GCC unroll 16
  for (int64_t k = 0; k < kGroup; k += kLanes) {
    const Vec v = hn::LoadU(Tag(), x + k);
    most = hn::Max(most, hn::Abs(v));
    unsound = hn::MulAdd(v, hn::Zero(Tag()), unsound);  // NaN of NaN and infinity, which the maximum may lose
  }
  const float largest = hn::GetLane(hn::MaxOfLanes(Tag(), most));
  const bool zeros = largest < kSmallest;
  q.scale = (zeros ? 0 : largest / 127) + hn::GetLane(hn::SumOfLanes(Tag(), unsound));
  const Vec inverse = hn::Set(Tag(), zeros ? 0 : 127 / largest);
  Ints sum = hn::Zero(IntTag());
#pragma GCC unroll 16
  for (int64_t k = 0; k < kGroup; k += kLanes) {
    const Vec scaled = hn::Mul(hn::LoadU(Tag(), x + k), inverse);  // within 127, or not finite
    const Ints rounded = hn::NearestInt(hn::Clamp(scaled, hn::Set(Tag(), -127), hn::Set(Tag(), 127)));
    sum = hn::Add(sum, rounded);
    const hn::Rebind<int8_t, Tag> bytes;
    hn::StoreU(hn::DemoteTo(bytes, rounded), bytes, q.code + k);
  }
  q.start = -128 * hn::GetLane(hn::SumOfLanes(IntTag(), sum));
}

void quantize_row(QuantizedGroup* q, const float* x, int64_t K) {
  for (int64_t k = 0; k + kGroup <= K; k += kGroup) quantize_group(*q++, x + k);
  if (K % kGroup == 0) return;
  HWY_ALIGN float last[kGroup] = {};
  std::memcpy(last, x + K / kGroup * kGroup, size_t(K % kGroup) * sizeof(float));
  quantize_group(*q, last);
}

void quantize_rows(QuantizedGroup* q, const float* x, int64_t M, int64_t K) {
  const auto row = [=](int64_t m) HWY_ATTR { quantize_row(q + m * groups(K), x + m * K, K); };
  if (const int64_t grain = isobath::row_grain(K); M > grain) return parallel_for(M, grain, row);
  for (int64_t m = 0; m < M; m++) row(m);
}

}  // namespace isobath::frozen::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace isobath::frozen {
HWY_EXPORT(has_byte_dots);
HWY_EXPORT(block_int8);
HWY_EXPORT(quantize_rows);

namespace cpu {
bool has_byte_dots() { return HWY_DYNAMIC_DISPATCH(has_byte_dots)(); }
void block_int8(const Block& block) { HWY_DYNAMIC_DISPATCH(block_int8)(block); }
void quantize_rows(QuantizedGroup* q, const float* x, int64_t M, int64_t K) {
  HWY_DYNAMIC_DISPATCH(quantize_rows)(q, x, M, K);
}
}  // namespace cpu
}  // namespace isobath::frozen
#endif
