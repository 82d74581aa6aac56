// A FrozenLinear with its arena and weights.
#pragma once

#include "ops/frozen_linear.h"
#include "support/compare.h"
#include "tensor/arena.h"

namespace isobath::testing {

inline constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8};

struct Frozen {
  FrozenLinear linear;
  Plan plan;
  Arena arena;
  Buffer W;
  Frozen(int64_t N, int64_t K, int64_t max_rows, WeightFormat format) : W(random_buffer({N, K}, 1)) {
    linear.plan(plan, "test", {.N = N, .K = K, .max_rows = max_rows, .format = format});
    arena = Arena(plan);
    linear.pack(W);
  }

  // y of M rows of x from `first` on.
  Buffer forward(const Buffer& x, int64_t first, int64_t M) const {
    Buffer y({M, linear.N()});
    linear.forward(y, x.view().slice(first, M));
    return y;
  }
  Buffer forward(const Buffer& x) const { return forward(x, 0, x.shape[0]); }
};

}  // namespace isobath::testing
