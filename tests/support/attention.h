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

// Keys and values of a list's rows as a cache holds them, in pages that lie in no order.
struct Cache {
  std::vector<std::byte> memory;
  std::vector<int32_t> page;
  KvPages pages;

  Cache(CF32 qkv, const Heads& heads, Storage storage = Storage::kF32)
      : pages{.data = nullptr, .G = heads.G, .K = heads.K, .storage = storage} {
    const int64_t count = pages_for(qkv.rows());
    for (int64_t i = 0; i < count; i++) page.push_back(int32_t(i % 2 == 0 ? count - 1 - i / 2 : i / 2));
    memory.resize(size_t(count * pages.page_bytes()), std::byte(0xFF));  // NaN in either format
    pages.data = memory.data();
    for (int64_t i = 0; i < qkv.rows(); i++) {
      const float* key = qkv.row(i) + heads.q_cols();
      write_kv_row(pages, page[size_t(i / kPageRows)], i % kPageRows, int32_t(i), key, key + heads.kv_cols());
    }
  }
  CachedSegment segment(int64_t query_begin, int64_t queries, int64_t keys) const {
    return {query_begin, queries, page.data(), keys};
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
