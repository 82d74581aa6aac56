// What Linear asks of a GEMM library: the three products of one weight matrix, for a fixed list of row counts.
// Implemented by linear_cpu.cpp (oneDNN) or by linear_plain.cpp (loops), one of which is in the build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ops/linear.h"
#include "tensor/arena.h"
#include "tensor/view.h"

namespace isobath::cpu {

// A weight gradient is summed over pieces of at most so many rows: one piece's columns stay in the second-level cache,
// and the library's scratch stays under some 1 MB. Longer pieces measured slower.
inline constexpr int64_t kMostWeightRows = 512;

class LinearProducts {
 public:
  // `rows`: the row counts, ascending; the calls below name one by its place in this list.
  LinearProducts(int64_t N, int64_t K, std::span<const int64_t> rows, bool backward, PackingRoom* room);
  ~LinearProducts();

  void plan(Plan& plan, const std::string& name);
  bool bound() const;  // the arena was made

  void pack(const float* W);                                                       // W (N,K); with a room, noted
  void forward(size_t place, float* y, const float* x);                            // y (M,N) = x (M,K) W^T
  void backward_input(size_t place, float* dx, const float* dy);                   // dx (M,K) = dy (M,N) W
  void backward_weight(size_t place, float* dW, const float* dy, const float* x);  // dW (N,K) += dy^T x

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace isobath::cpu
