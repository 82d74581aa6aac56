// Rows of bf16 in a test's hands.
#pragma once

#include <vector>

#include "support/compare.h"
#include "tensor/stored.h"

namespace isobath::testing {

// Outputs start as NaN.
struct Bf16Buffer {
  std::vector<Bf16> values;
  Shape shape;
  explicit Bf16Buffer(Shape s) : values(size_t(s.numel()), Bf16{0x7fff}), shape(s) {}
  explicit Bf16Buffer(const Buffer& from) : Bf16Buffer(from.shape) {
    for (size_t i = 0; i < values.size(); i++) values[i] = to_stored<Bf16>(from.values[i]);
  }
  View<Bf16> view() { return {values.data(), shape}; }
  operator View<Bf16>() { return view(); }
  operator View<const Bf16>() const { return {values.data(), shape}; }
  Buffer wide() const {
    Buffer b(shape);
    for (size_t i = 0; i < values.size(); i++) b.values[i] = to_f32(values[i]);
    return b;
  }
};

inline Buffer rounded(const Buffer& b) { return Bf16Buffer(b).wide(); }

}  // namespace isobath::testing
