// How FrozenLinear keeps its weights, and what its kernels are given.
//
// Panels of 32 columns (rows n of W), the last one filled up with zeros; within a panel k ascends, so that a block of
// rows of x reads memory from front to back. Every instruction set runs the same bytes: pairs hold columns i and i +
// 16, which vectors of any width take apart with a shift and a mask.
//   fp32   per k:  32 floats
//   bf16   per k:  16 words of 32 bits, column i in the low half of word i, column i + 16 in its high half
//   int8   per group of 32 k:  16 words of bf16 scales, paired like that; then per 4 k: 32 words, column i's four codes
//          in word i, k ascending from the low byte, each plus 128 (the products of bytes that CPUs have are of an
//          unsigned and a signed byte)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/frozen_linear.h"
#include "tensor/raw_matrix.h"

namespace isobath::frozen {

inline constexpr int64_t kPanel = 32, kGroup = 32;
inline constexpr int64_t kGroupBytes = 2 * kPanel + kGroup * kPanel;
inline constexpr float kSmallest = 1e-30f;  // of a group's largest value: 127 over it must be finite
inline constexpr uint16_t kBf16NaN = 0x7FC0;

inline int64_t groups(int64_t K) { return (K + kGroup - 1) / kGroup; }

struct Weights {
  WeightFormat format;
  int64_t N, K;
  int64_t chain;                    // kF32, kBf16: terms of one chain
  const std::byte* data = nullptr;  // `panels` times `steps` times `step_bytes`
  bool byte_dots = false;           // kInt8: this CPU multiplies bytes

  int64_t panels() const { return (N + kPanel - 1) / kPanel; }
  bool grouped() const { return format == WeightFormat::kInt8; }
  int64_t steps() const { return grouped() ? groups(K) : K; }  // a step is one k, or one group
  int64_t step_bytes() const {
    return grouped() ? kGroupBytes : kPanel * (format == WeightFormat::kF32 ? int64_t(sizeof(float)) : 2);
  }
  int64_t panel_bytes() const { return steps() * step_bytes(); }
  int64_t bytes() const { return panels() * panel_bytes(); }
};

// The parts one above the other, N rows in all, by all threads. Returns whether every number is sound: finite, and of
// stored int8 a code of -127 or more and a scale that is not negative.
bool pack(std::byte* to, const Weights& weights, std::span<const RawMatrix> parts);

// x as kInt8 multiplies it, (M, groups), zeros behind the last k.
struct QuantizedGroup {
  float scale;
  int32_t start;  // -128 times the sum of the codes: takes back the 128 that the weights' codes have on them
  int8_t code[kGroup];
};

// One block of the product: a few rows, one panel, some of its steps.
struct Block {
  float* y;                 // first row and column of the block
  int64_t N;                // floats from one row of y to the next
  int64_t rows;             // 1 to most_rows(format)
  int64_t width;            // columns of the panel that exist
  const float* x;           // kF32, kBf16: the rows' first k
  const QuantizedGroup* q;  // kInt8: the rows' first group
  int64_t x_row;            // bytes from one row of x or q to the next
  const std::byte* weights;
  int64_t steps;
  bool first;      // y is overwritten; else it has the sum of the earlier steps
  bool ask_ahead;  // for weights further on
  bool byte_dots;
};

namespace cpu {
int64_t most_rows(WeightFormat format);  // of one block: what the registers hold
bool has_byte_dots();
void block_f32(const Block& block);
void block_bf16(const Block& block);
void block_int8(const Block& block);
// Codes of 32 weights (zeros behind the last one); returns the scale's bf16 bits.
uint16_t quantize_weights(int8_t* code, const float* w);
void quantize_rows(QuantizedGroup* q, const float* x, int64_t M, int64_t K);
}  // namespace cpu

// y (M,N) = x (M,K) W^T, x as `q` for kInt8. On as many threads as pay.
void run(const Weights& weights, float* y, const float* x, const QuantizedGroup* q, int64_t M);

// The terms of one chain for which fp32 products have the bits of Linear's library, or 0 if there are none.
// Found by trying, once per K.
int64_t chain_of_linear(int64_t K);
// Where there are none, that of oneDNN's AVX-512 kernels: it suits the caches as well as any.
inline int64_t default_chain(int64_t K) { return K <= 512 ? K : K <= 1024 ? 512 : 1024; }

}  // namespace isobath::frozen
