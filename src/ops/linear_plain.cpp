// Linear's products as plain loops: for thread sanitizers, which cannot look into a GEMM library, and for machines
// without one. Sums run in one order, so bits depend on nothing but the row.
#include <algorithm>
#include <vector>

#include "base/parallel.h"
#include "base/work.h"
#include "ops/linear.h"
#include "ops/linear_products.h"

namespace isobath::cpu {

struct LinearProducts::State {
  int64_t N, K;
  std::vector<int64_t> rows;
  PackingRoom* room;
  F32 packed = {};           // (N,K) without a room
  const float* W = nullptr;  // with one: where the weights are

  // As a library packs: for each direction on its own.
  const float* ready(const void* direction) {
    if (room == nullptr) return packed.data;
    float* to = reinterpret_cast<float*>(room->bytes.data);
    if (room->holder == direction) return to;
    const Work work("linear_pack", {.bytes = 2 * N * K * int64_t(sizeof(float))});
    std::copy_n(W, N * K, to);
    room->holder = direction;
    return to;
  }
  const void* forward_direction() const { return &N; }
  const void* backward_direction() const { return &K; }
};

LinearProducts::LinearProducts(int64_t N, int64_t K, std::span<const int64_t> rows, bool, PackingRoom* room)
    : state_(std::make_unique<State>(State{.N = N, .K = K, .rows = {rows.begin(), rows.end()}, .room = room})) {}
LinearProducts::~LinearProducts() = default;

void LinearProducts::plan(Plan& plan, const std::string& name) {
  if (state_->room != nullptr)
    state_->room->needed = std::max(state_->room->needed, state_->N * state_->K * int64_t(sizeof(float)));
  else
    plan.add(name + ".packed", state_->packed, {state_->N, state_->K});
}

bool LinearProducts::bound() const {
  return state_->room != nullptr ? !state_->room->bytes.empty() : !state_->packed.empty();
}

void LinearProducts::pack(const float* W) {
  State& s = *state_;
  s.W = W;
  if (s.room == nullptr)
    std::copy_n(W, s.packed.numel(), s.packed.data);
  else if (s.room->holder == s.forward_direction() || s.room->holder == s.backward_direction())
    s.room->holder = nullptr;
}

void LinearProducts::forward(size_t place, float* y, const float* x) {
  const auto [N, K] = std::pair(state_->N, state_->K);
  const float* W = state_->ready(state_->forward_direction());
  parallel_for(state_->rows[place], 1, [=](int64_t m) {
    for (int64_t n = 0; n < N; n++) {
      float sum = 0;
      for (int64_t k = 0; k < K; k++) sum += x[m * K + k] * W[n * K + k];
      y[m * N + n] = sum;
    }
  });
}

void LinearProducts::backward_input(size_t place, float* dx, const float* dy) {
  const auto [N, K] = std::pair(state_->N, state_->K);
  const float* W = state_->ready(state_->backward_direction());
  parallel_for(state_->rows[place], 1, [=](int64_t m) {
    std::fill_n(dx + m * K, K, 0.0f);
    for (int64_t n = 0; n < N; n++)
      for (int64_t k = 0; k < K; k++) dx[m * K + k] += dy[m * N + n] * W[n * K + k];
  });
}

void LinearProducts::backward_weight(size_t place, float* dW, const float* dy, const float* x) {
  const auto [N, K] = std::pair(state_->N, state_->K);
  const int64_t M = state_->rows[place];
  parallel_for(N, 1, [=](int64_t n) {
    for (int64_t m = 0; m < M; m++)
      for (int64_t k = 0; k < K; k++) dW[n * K + k] += dy[m * N + n] * x[m * K + k];
  });
}

}  // namespace isobath::cpu

namespace isobath {

std::string linear_library() { return "plain loops"; }

}  // namespace isobath
