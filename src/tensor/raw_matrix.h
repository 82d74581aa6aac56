// A matrix as it lies in a file: row-major numbers of one of several types, at any address. Products pack from it
// directly (ops/frozen_linear.h), so that a mapped file needs no copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/view.h"

namespace isobath {

enum class RawType : uint8_t { kF32, kBf16, kF16, kInt8 };

struct RawMatrix {
  RawType type = RawType::kF32;
  Shape shape = {};                   // (N,K)
  const std::byte* values = nullptr;  // (N,K)
  const std::byte* scales = nullptr;  // kInt8: (N, ceil(K/32)) in bf16, as ops/frozen_linear.h has them
};

inline int64_t bytes_per_value(RawType type) { return type == RawType::kF32 ? 4 : type == RawType::kInt8 ? 1 : 2; }

inline RawMatrix raw(CF32 W) { return {RawType::kF32, W.shape, reinterpret_cast<const std::byte*>(W.data), nullptr}; }

}  // namespace isobath
