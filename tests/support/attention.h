// What the tests of attention share.
#pragma once

#include "base/simd.h"
// After simd.h, which says what is built.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "ops/attention.h"
#include "reference/attention.h"
#include "support/compare.h"

namespace isobath::testing {

// Every case runs on every instruction set that the machine and the library have, with one thread unless it says else.
class Attention : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(GetParam());
    set_thread_count(1);
  }
  void TearDown() override {
    set_thread_count(threads_);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

 private:
  int threads_ = thread_count();
};

inline const std::vector<int64_t> kLengths{1, 2, 0, 63, 64, 65, 0, 130};

inline std::vector<int32_t> begins(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> begin{0};
  for (const int64_t n : lengths) begin.push_back(begin.back() + int32_t(n));
  return begin;
}

inline CI32 view_of(const std::vector<int32_t>& v) { return {v.data(), {int64_t(v.size())}}; }

struct Output {
  Buffer o, lse;
};

inline Output forward(const Buffer& qkv, const std::vector<int32_t>& begin, const Heads& heads) {
  Output out{Buffer({qkv.view().rows(), heads.q_cols()}), Buffer({qkv.view().rows(), heads.H})};
  attention_forward(out.o, out.lse, qkv, view_of(begin), heads);
  return out;
}

inline Buffer backward(const Buffer& d_o, const Buffer& qkv, const Output& out, const std::vector<int32_t>& begin,
                       const Heads& heads) {
  Buffer dqkv(qkv.shape);
  attention_backward(dqkv, d_o, qkv, out.o, out.lse, view_of(begin), heads);
  return dqkv;
}

inline Buffer random_qkv(int64_t rows, const Heads& heads, uint64_t seed = 1, float scale = 1) {
  return random_buffer({rows, heads.qkv_cols()}, seed, scale);
}

// Keys and values of a list's rows as a cache holds them.
struct Cache {
  Buffer key, value;
  Cache(CF32 qkv, const Heads& heads) : key({qkv.rows(), heads.kv_cols()}), value({qkv.rows(), heads.kv_cols()}) {
    for (int64_t row = 0; row < qkv.rows(); row++)
      for (int64_t c = 0; c < heads.kv_cols(); c++) {
        key[row * heads.kv_cols() + c] = qkv.row(row)[heads.q_cols() + c];
        value[row * heads.kv_cols() + c] = qkv.row(row)[heads.q_cols() + heads.kv_cols() + c];
      }
  }
};

// A rounding of the scores, which are sums of K terms of this size, changes a weight by as much of itself.
inline double score_terms(const Buffer& qkv, const Heads& heads) {
  return max_abs(qkv) * max_abs(qkv) / std::sqrt(double(heads.K));
}

inline void expect_forward_close(const Output& got, const Buffer& qkv, const std::vector<int32_t>& begin,
                                 const Heads& heads) {
  const auto want = reference::attention(to_double(qkv), begin, heads.H, heads.G, heads.K);
  const double terms = 1 + score_terms(qkv, heads), count = double(heads.K);
  expect_close(got.o.values, want.o, max_abs(qkv) * terms, count, "o");
  expect_close(got.lse.values, want.lse, terms, count, "lse");
}

}  // namespace isobath::testing
