#include "ops/expert_router.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/work.h"
#include "ops/rmsnorm.h"
#include "reference/gradient.h"
#include "support/bf16.h"
#include "support/experts.h"

namespace isobath {
namespace {
using namespace testing;
using reference::Complex;
using reference::Vec;

struct Sizes {
  int64_t S, D, O;
};
constexpr Sizes kSizes[] = {{1, 1, 1}, {3, 7, 2}, {70, 65, 5}, {33, 129, 8}};

// z normed, times W: (S,O)
template <class T>
Vec<T> logits(const Vec<T>& h, const Vec<T>& W, size_t D) {
  const size_t S = h.size() / D, O = W.size() / D;
  Vec<T> l(S * O, T(0));
  for (size_t s = 0; s < S; s++)
    for (size_t o = 0; o < O; o++)
      for (size_t d = 0; d < D; d++) l[s * O + o] += h[s * D + d] * W[o * D + d];
  return l;
}

struct Rows {
  Buffer z, rstd, norm, h;
  explicit Rows(const Sizes& n)
      : z(random_buffer({n.S, n.D}, 1, 2)),
        rstd(random_buffer({n.S}, 2)),
        norm(random_buffer({n.D}, 3)),
        h({n.S, n.D}) {
    rmsnorm_apply(h, z, norm, rstd);
  }
  NormedRows view() const { return {z.view(), rstd, norm}; }
};

struct Scores {
  Buffer logit, p;
};
Scores scores(const NormedRows& rows, const Buffer& W) {
  Scores s{Buffer({rows.rstd.numel(), W.shape[0]}), Buffer({rows.rstd.numel(), W.shape[0]})};
  expert_router_forward(s.logit, s.p, rows, W);
  return s;
}

TEST(ExpertRouter, ForwardMatchesTheFormula) {
  for (const Sizes& n : kSizes) {
    const Rows rows(n);
    const Buffer W = random_buffer({n.O, n.D}, 4);
    const Scores got = scores(rows.view(), W);
    const auto want = logits(to_double(rows.h), to_double(W), size_t(n.D));
    expect_close(got.logit.values, want, max_abs(rows.h) * max_abs(W), double(n.D));
    const Buffer p = softmax_of(got.logit);
    for (int64_t i = 0; i < n.S * n.O; i++) ASSERT_NEAR(got.p[i], p[i], 1e-5 * p[i] + 1e-30) << i;
  }
}

TEST(ExpertRouter, HugeScoresGiveAFiniteSoftmax) {
  const Buffer z({2, 1}, 1), rstd({2}, 1), norm({1}, 1);
  Buffer W({3, 1}, 0);
  W[0] = 3e38f, W[1] = -3e38f;
  const Scores got = scores({z.view(), rstd, norm}, W);
  EXPECT_EQ(got.p[0], 1);
  EXPECT_EQ(got.p[1], 0);
  EXPECT_EQ(got.p[2], 0);
}

TEST(ExpertRouter, ReadsBf16Rows) {
  const Rows rows({5, 37, 3});
  const Bf16Buffer stored(rows.z);
  const Buffer W = random_buffer({3, 37}, 4), wide = stored.wide();
  const NormedRows narrow{View<const Bf16>(stored), rows.rstd, rows.norm}, same{wide.view(), rows.rstd, rows.norm};
  expect_same_bits(scores(narrow, W).logit, scores(same, W).logit);
}

TEST(ExpertRouter, ARowsScoresDependOnThatRowAlone) {
  const Rows rows({301, 83, 5});
  const Buffer W = random_buffer({5, 83}, 4);
  const Scores one = with_threads(1, [&] { return scores(rows.view(), W); });
  for (const int threads : {2, 5})
    expect_same_bits(with_threads(threads, [&] { return scores(rows.view(), W); }).p, one.p);
  const NormedRows last{rows.z.view().slice(300, 1), rows.rstd.view().slice(300, 1), rows.norm};
  expect_same_bits(scores(last, W).p.values.data(), one.p.values.data() + 300 * 5, 5);
}

TEST(ExpertRouter, BackwardMatchesTheFormula) {
  for (const Sizes& n : kSizes) {
    const Rows rows(n);
    const Buffer W = random_buffer({n.O, n.D}, 4), dlogit = random_buffer({n.S, n.O}, 5);
    Buffer dW({n.O, n.D}, 10), dh({n.S, n.D}, 20), partial({kGradChunks, n.O * n.D});
    expert_router_backward_weight(add_to(dW), dlogit, rows.view(), partial);
    expert_router_backward_input(add_to(dh), dlogit, W);
    const auto loss = [&](const Vec<Complex>& h, const Vec<Complex>& weights) {
      const auto l = logits(h, weights, size_t(n.D));
      Complex sum = 0;
      for (size_t i = 0; i < l.size(); i++) sum += l[i] * double(dlogit[int64_t(i)]);
      return sum;
    };
    const auto hs = to_double(rows.h), ws = to_double(W);
    const Vec<Complex> hc(hs.begin(), hs.end()), wc(ws.begin(), ws.end());
    auto want_dW = reference::complex_step(ws, [&](const auto& v) { return loss(hc, v); });
    auto want_dh = reference::complex_step(hs, [&](const auto& v) { return loss(v, wc); });
    for (double& v : want_dW) v += 10;
    for (double& v : want_dh) v += 20;
    expect_close(dW.values, want_dW, 10 + max_abs(dlogit) * max_abs(rows.h), double(n.S), "dW");
    expect_close(dh.values, want_dh, 20 + max_abs(dlogit) * max_abs(W), double(n.O), "dh");
  }
}

TEST(ExpertRouter, SoftmaxBackwardMatchesTheFormula) {
  for (const Sizes& n : kSizes) {
    const Buffer logit = random_buffer({n.S, n.O}, 1, 2), dp = random_buffer({n.S, n.O}, 2), p = softmax_of(logit);
    Buffer dlogit({n.S, n.O}, 10);
    expert_softmax_backward(add_to(dlogit), dp, p);
    auto want = reference::complex_step(to_double(logit), [&](const Vec<Complex>& v) {
      Complex sum = 0;
      for (int64_t s = 0; s < n.S; s++) {
        const Vec<Complex> row(v.begin() + s * n.O, v.begin() + (s + 1) * n.O);
        const auto q = reference::softmax(row);
        for (int64_t o = 0; o < n.O; o++) sum += q[size_t(o)] * double(dp[s * n.O + o]);
      }
      return sum;
    });
    for (double& v : want) v += 10;
    expect_close(dlogit.values, want, 10 + max_abs(dp), double(n.O));
  }
}

TEST(ExpertRouter, WeightGradientHasTheSameBitsForAnyNumberOfThreads) {
  const Rows rows({600, 83, 3});
  const Buffer dlogit = random_buffer({600, 3}, 5);
  const auto run = [&] {
    Buffer dW({3, 83}, 1), partial({kGradChunks, 3 * 83});
    expert_router_backward_weight(add_to(dW), dlogit, rows.view(), partial);
    return dW;
  };
  expect_same_bits(with_threads(1, run), with_threads(2, run));
}

TEST(ExpertRouter, CountsItsMultiplyAdds) {
  const Rows rows({5, 7, 3});
  const Buffer W = random_buffer({3, 7}, 4), dlogit = random_buffer({5, 3}, 5);
  Buffer dW({3, 7}, 0), dh({5, 7}, 0), partial({kGradChunks, 21});
  const int64_t before = executed_multiply_adds;
  scores(rows.view(), W);
  EXPECT_EQ(executed_multiply_adds - before, 105);
  expert_router_backward_weight(add_to(dW), dlogit, rows.view(), partial);
  expert_router_backward_input(add_to(dh), dlogit, W);
  EXPECT_EQ(executed_multiply_adds - before, 315);
}

TEST(ExpertRouter, NoRowsLeaveTheAccumulatorsAndWrongShapesAreRefused) {
  const Rows rows({2, 7, 3});
  const Buffer W = random_buffer({3, 7}, 4), none({0, 3}), empty({0, 7});
  Buffer dW({3, 7}, 10), partial({kGradChunks, 21}), l({2, 3}), p({2, 2}), dh({0, 7});
  const NormedRows no_rows{empty.view(), rows.rstd.view().slice(0, 0), rows.norm};
  scores(no_rows, W);
  expert_router_backward_weight(add_to(dW), none, no_rows, partial);
  expert_router_backward_input(add_to(dh), none, W);
  expect_same_bits(dW, Buffer({3, 7}, 10));
  EXPECT_THROW(expert_router_forward(l, p, rows.view(), W), Error);
  EXPECT_THROW(expert_router_backward_weight(add_to(dW), l, rows.view(), Buffer({1, 21})), Error);
}

}  // namespace
}  // namespace isobath
