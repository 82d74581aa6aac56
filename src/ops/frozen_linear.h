// The product y = x W^T of weights that no longer change: for generation, where a step of few rows costs what reading
// the weights costs, and a prompt of many what the multiply-adds cost. Weights are kept as fp32, bf16 or int8.
//
//   y[m,n] = sum_k x[m,k] W[n,k]
// x (M,K)   y (M,N)   W (N,K), all row-major; any M up to the planned one, any N and K.   y does not alias x.
//
// kF32    W as it is.
// kBf16   W rounded to bf16, to nearest, ties to even. Products and sums are fp32.
// kInt8   W[n,k] = scale[n,g] * code[n,k], g = k / 32: groups of 32 along k, the last one shorter where K is no
// multiple.
//           code   (N,K)                int8, -127 to 127
//           scale  (N, ceil(K / 32))    bf16, the largest |W| of the group / 127, rounded up
//         x is rounded likewise at each call, a row's groups of 32 having each an fp32 scale, and then
//           y[m,n] = sum_g (scale_x[m,g] * scale[n,g]) * (sum over k in g of code_x[m,k] code[n,k])
//         where the inner sums are exact integers and the outer one runs over g in ascending order, fused
//         multiply-adds. A group with no |value| of 1e-30 or more counts as zeros; one with NaN or infinity gives NaN.
//
// Bits: an element of y is summed over k in chains of chain() terms, each a chain of fused multiply-adds from 0, added
// in order. Nothing depends on M, on the other rows or on the number of threads. chain() is that of Linear's library
// where it sums like this (AVX-512 kernels of oneDNN 2.6 do): then y has the bits of Linear on the same W. Elsewhere
// (matches_linear() is false) the two agree within rounding.
//
// Cost: at few rows the bytes of the packed weights, N rounded up to 32, and of kInt8 K too: 4, 2 or 1.0625 an element.
// Sums of int8 are made by the instruction for four products of bytes (AVX-512 VNNI, AVX-VNNI) where the CPU has it.
// Nothing is allocated in a call. One thread at a time may call the FrozenLinears of one plan.
// Source of int8 with group scales on both sides: llama.cpp's Q8_0 format (there with fp16 scales).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tensor/arena.h"
#include "tensor/raw_matrix.h"
#include "tensor/view.h"

namespace isobath {

enum class WeightFormat : uint8_t { kF32, kBf16, kInt8 };
std::string_view name_of(WeightFormat format);  // "fp32", "bf16", "int8"

class FrozenLinear {
 public:
  struct Sizes {
    int64_t N, K;      // W is (N,K)
    int64_t max_rows;  // the largest M
    WeightFormat format = WeightFormat::kF32;
  };
  FrozenLinear();
  ~FrozenLinear();
  FrozenLinear(FrozenLinear&&) noexcept;
  FrozenLinear& operator=(FrozenLinear&&) noexcept;

  // Adds the packed weights to the plan, and for int8 scratch that all FrozenLinears of one plan share. Plan them in
  // the order in which they are called: reading ahead crosses from one to the next.
  void plan(Plan& plan, const std::string& name, const Sizes& sizes);

  // Packs W, rounding it to the format.
  void pack(CF32 W);
  // Packs matrices one above the other, N rows in all, from wherever they lie (a mapped file) and without a copy.
  // Stored int8 is taken as it is, for kInt8 only. Returns whether all numbers are sound: finite, and of stored int8
  // codes of -127 or more with scales that are not negative. Unsound ones are packed nonetheless.
  bool pack(std::span<const RawMatrix> parts);
  // Packs codes (N,K) and scales (N, ceil(K/32)), of bf16 bits, as quantize_int8 makes them. For kInt8 only.
  void pack(View<const int8_t> code, View<const uint16_t> scale);

  void forward(F32 y, CF32 x) const;

  int64_t N() const;
  int64_t K() const;
  WeightFormat format() const;
  int64_t chain() const;        // terms of one chain
  bool matches_linear() const;  // y has the bits of Linear on the same (rounded) W; never for int8

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// W as kInt8 has it: code (N,K), scale (N, ceil(K/32)) as bf16 bits.
void quantize_int8(View<int8_t> code, View<uint16_t> scale, CF32 W);

}  // namespace isobath
