// Matrix products y = x W^T through a GEMM library, with weights packed once per change, or before a product.
//
//   forward           y[m,n]   = sum_k x[m,k] W[n,k]
//   backward_input    dx[m,k]  = sum_n dy[m,n] W[n,k]
//   backward_weight   dW[n,k] += sum_m dy[m,n] x[m,k]
// x, dx (M,K)   y, dy (M,N)   W, dW (N,K), all row-major.   Outputs alias no input.
//
// Bits: an element of y or dx is summed over k (n) in an order that depends on (N,K) only, never on M or on the number
// of threads; dW has the same bits for any number of threads. The library holds this where its kernel is an AVX-512
// one (see linear_library), which tests check; elsewhere results agree within rounding only.
//
// A Linear is planned for the list sizes it will meet: `exact` are sizes that come at every step; any other M is run
// as pieces, the largest that fit of a planned set. So nothing is built inside a step. The number of threads is that of
// the time of plan(). One thread at a time may call the Linears of one plan.
// Build without a GEMM library (ISOBATH_PLAIN_PRODUCT): the same interface over plain loops, for thread sanitizers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tensor/arena.h"
#include "tensor/view.h"

namespace isobath {

// Room for one packed copy, which Linears take turns with: one that finds another's copy there packs its weights again.
// Whoever owns it plans `bytes` for the needs of all its Linears, once they are planned.
struct PackingRoom {
  View<std::byte> bytes;
  int64_t needed = 0;
  const void* holder = nullptr;  // whose copy is there
};

class Linear {
 public:
  struct Sizes {
    int64_t N, K;                    // W is (N,K)
    int64_t max_rows;                // the largest M
    std::span<const int64_t> exact;  // list sizes worth a product of their own
    bool backward = true;            // false: forward only, half the packed memory
    PackingRoom* room = nullptr;     // null: packed copies of its own. The same bits either way
  };
  Linear();
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  // Builds the products and adds the packed copies of W to the plan (or their size to what the room needs), and the
  // library's scratch, which all Linears of one plan share. A room must outlive the Linear, where it is.
  void plan(Plan& plan, const std::string& name, const Sizes& sizes);

  // Copies W into the packed forms. Call after every change of W. Bits of W are unchanged by packing. With a room W is
  // only noted, and packed when a product needs it: it must stay where it is.
  void pack(CF32 W);

  void forward(F32 y, CF32 x) const;
  void backward_input(F32 dx, CF32 dy) const;
  void backward_weight(Accum dW, CF32 dy, CF32 x) const;

  int64_t N() const;
  int64_t K() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Multiply-adds of one direction over M rows.
inline int64_t linear_multiply_adds(int64_t M, int64_t N, int64_t K) { return M * N * K; }

// The library, its version and the kernel that it chose for a (256, 384, 384) product: for banners and for the test
// that no slow kernel was silently taken.
std::string linear_library();

}  // namespace isobath
