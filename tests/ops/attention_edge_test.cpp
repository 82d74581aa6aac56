#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "base/parallel.h"
#include "base/work.h"
#include "ops/attention.h"
#include "reference/attention.h"
#include "support/attention.h"
#include "support/compare.h"

namespace isobath {
namespace {

using namespace isobath::testing;

INSTANTIATE_TEST_SUITE_P(OnEachTarget, Attention, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

TEST_P(Attention, LaterRowsContributeNothing) {
  const Heads heads{2, 2, 16};
  Buffer qkv = random_qkv(100, heads);
  const Output before = forward(qkv, {0, 100}, heads);
  for (int64_t i = 41 * heads.qkv_cols(); i < qkv.shape.numel(); i++) qkv[i] = 1e4f * float(i % 5 - 2);
  const Output after = forward(qkv, {0, 100}, heads);
  expect_same_bits(before.o.values.data(), after.o.values.data(), 41 * heads.q_cols());
}

TEST_P(Attention, FirstRowSeesItselfAlone) {
  const Heads heads{4, 2, 7};
  const auto begin = begins({1, 5, 66});
  const Buffer qkv = random_qkv(begin.back(), heads);
  const Output out = forward(qkv, begin, heads);
  for (const int64_t row : {0, 1, 6})
    for (int64_t h = 0; h < heads.H; h++)
      for (int64_t k = 0; k < heads.K; k++)
        EXPECT_EQ(out.o.view().row(row)[h * heads.K + k],
                  qkv.view().row(row)[heads.q_cols() + heads.kv_cols() + h / 2 * heads.K + k]);
}

TEST_P(Attention, EqualScoresAverageTheValues) {
  const Heads heads{1, 1, 8};
  Buffer qkv = random_qkv(150, heads);
  for (int64_t row = 0; row < 150; row++) std::fill_n(qkv.view().row(row), 8, 0.0f);
  const Output out = forward(qkv, {0, 150}, heads);
  expect_forward_close(out, qkv, {0, 150}, heads);
  for (int64_t row = 0; row < 150; row++) EXPECT_NEAR(out.lse[row], std::log(double(row + 1)), 1e-6);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  const Heads heads{1, 1, 4};
  Buffer qkv = random_qkv(140, heads);
  for (int64_t row = 0; row < 140; row++)
    for (int64_t k = 0; k < 4; k++) {
      qkv.view().row(row)[k] = 100;
      qkv.view().row(row)[4 + k] = float(row % 3 - 1) * 50;  // scores of -1e4, 0 and 1e4
    }
  const Output out = forward(qkv, {0, 140}, heads);
  const auto want = reference::attention(to_double(qkv), {0, 140}, 1, 1, 4);
  expect_close(out.o.values, want.o, max_abs(random_qkv(140, heads)), 140);
  expect_close(out.lse.values, want.lse, 1e4, 4);
  const Buffer d_o = random_buffer({140, 4}, 2);
  for (const float g : backward(d_o, qkv, out, {0, 140}, heads).values) ASSERT_TRUE(std::isfinite(g));
}

TEST_P(Attention, NonFiniteInputIsSeen) {
  const Heads heads{1, 1, 4};
  Buffer qkv = random_qkv(70, heads);
  qkv.view().row(66)[5] = NAN;
  const Output out = forward(qkv, {0, 70}, heads);
  for (int64_t row = 0; row < 70; row++) EXPECT_EQ(std::isnan(out.o.view().row(row)[0]), row >= 66) << row;
}

TEST_P(Attention, InferenceWantsNoLse) {
  const Heads heads{2, 1, 8};
  const auto begin = begins(kLengths);
  const Buffer qkv = random_qkv(begin.back(), heads);
  Buffer o({begin.back(), heads.q_cols()});
  attention_forward(o, {}, qkv, view_of(begin), heads);
  expect_same_bits(o, forward(qkv, begin, heads).o);
}

TEST_P(Attention, EmptyLists) {
  const Heads heads{2, 1, 8};
  const Buffer qkv({0, heads.qkv_cols()});
  for (const std::vector<int32_t>& begin : {std::vector<int32_t>{0}, {0, 0}, {0, 0, 0}}) {
    const Output out = forward(qkv, begin, heads);
    backward(Buffer({0, heads.q_cols()}), qkv, out, begin, heads);
  }
  Buffer o({0, heads.q_cols()});
  const CachedSegment empty{0, 0, nullptr, 0};
  const KvPages none{.data = nullptr, .G = heads.G, .K = heads.K};
  attention_cached(o, qkv, {}, none, heads);
  attention_cached(o, qkv, {&empty, 1}, none, heads);
}

int64_t executed(const auto& run) {
  const int64_t before = executed_multiply_adds;
  run();
  return executed_multiply_adds - before;
}

TEST_P(Attention, CountedMultiplyAddsAreThePredicted) {
  std::vector<int64_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.push_back(1000);
  for (const Heads heads : {Heads{1, 1, 4}, Heads{6, 2, 3}}) {
    const Buffer all = random_qkv(1000, heads), d_all = random_buffer({1000, heads.q_cols()}, 2);
    const Cache cache(all, heads);
    Output out{Buffer({1000, heads.q_cols()}), Buffer({1000, heads.H})};
    Buffer dqkv(all.shape);
    for (const int64_t n : lengths) {
      const std::vector<int32_t> begin{0, int32_t(n)};
      const CF32 qkv = all.view().slice(0, n);
      const F32 o = out.o.view().slice(0, n), lse = out.lse.view().slice(0, n);
      ASSERT_EQ(executed([&] { attention_forward(o, lse, qkv, view_of(begin), heads); }),
                attention_forward_multiply_adds(n, heads))
          << n;
      ASSERT_EQ(executed([&] {
                  attention_backward(dqkv.view().slice(0, n), d_all.view().slice(0, n), qkv, o, lse, view_of(begin),
                                     heads);
                }),
                attention_backward_multiply_adds(n, heads))
          << n;
      for (const int64_t queries : {int64_t(1), std::min<int64_t>(n, 50)}) {
        const CachedSegment segment = cache.segment(n - queries, queries, n);
        ASSERT_EQ(executed([&] {
                    attention_cached(o, qkv, {&segment, 1}, cache.pages, heads);
                  }),
                  attention_cached_multiply_adds(queries, n, heads))
            << queries << " of " << n;
      }
    }
  }
}

// The count stays near the causal half, which no program can undercut: n (n+1) / 2 pairs, two products of K.
TEST_P(Attention, MultiplyAddsAreNearTheCausalHalf) {
  const Heads heads{6, 6, 64};
  for (const int64_t n : {1, 7, 256, 1024}) {
    const int64_t least = n * (n + 1) * heads.K * heads.H;
    EXPECT_GE(attention_forward_multiply_adds(n, heads), least);
    EXPECT_GE(2 * attention_backward_multiply_adds(n, heads), 5 * least);
  }
  EXPECT_EQ(attention_forward_multiply_adds(1, heads), 2 * heads.K * heads.H);
  EXPECT_EQ(attention_cached_multiply_adds(1, 1000, heads), 2 * 1000 * heads.K * heads.H);
  EXPECT_LE(double(attention_forward_multiply_adds(1024, heads)), 1.02 * 1024 * 1025 * 64 * 6);
}

TEST_P(Attention, RefusesWhatDoesNotFit) {
  const Heads heads{4, 2, 8};
  const Buffer qkv = random_qkv(3, heads);
  Buffer o({3, heads.q_cols()}), lse({3, heads.H}), wrong({3, 5});
  const std::vector<int32_t> begin{0, 3}, late{1, 3}, early{0, 2}, falling{0, 5, 3};
  EXPECT_THROW(attention_forward(o, lse, qkv, view_of(begin), {4, 3, 8}), Error);
  EXPECT_THROW(attention_forward(o, lse, qkv, view_of(begin), {4, 2, 257}), Error);
  EXPECT_THROW(attention_forward(wrong, lse, qkv, view_of(begin), heads), Error);
  EXPECT_THROW(attention_forward(o, wrong, qkv, view_of(begin), heads), Error);
  EXPECT_THROW(attention_forward(o, lse, wrong, view_of(begin), heads), Error);
  for (const auto* bad : {&late, &early, &falling})
    EXPECT_THROW(attention_forward(o, lse, qkv, view_of(*bad), heads), Error);
  EXPECT_THROW(attention_backward(wrong, o, qkv, o, lse, view_of(begin), heads), Error);
  const Cache cache(qkv, heads);
  const CachedSegment few_keys = cache.segment(0, 3, 2), outside = cache.segment(1, 3, 3),
                      fits = cache.segment(0, 3, 3);
  KvPages other = cache.pages;
  other.K = 4;
  EXPECT_THROW(attention_cached(o, qkv, {&few_keys, 1}, cache.pages, heads), Error);
  EXPECT_THROW(attention_cached(o, qkv, {&outside, 1}, cache.pages, heads), Error);
  EXPECT_THROW(attention_cached(o, qkv, {&fits, 1}, other, heads), Error);
}

}  // namespace
}  // namespace isobath
