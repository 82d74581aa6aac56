#include "ops/swiglu.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/gradient.h"
#include "reference/swiglu.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

// With uv kept where it is.
Buffer forward(Buffer uv) {
  Buffer h({uv.shape[0], uv.shape[1] / 2});
  const Buffer before = uv;
  swiglu_forward(h, uv, uv);
  expect_same_bits(uv, before);
  return h;
}

TEST(Swiglu, ForwardMatchesTheFormula) {
  for (const auto& [S, F] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 64}, {67, 83}}) {
    const Buffer uv = random_buffer({S, 2 * F}, 1, 3);
    const double scale = max_abs(uv);
    expect_close(forward(uv).values, reference::swiglu(to_double(uv), size_t(F)), scale * scale, 1);
  }
}

// Every magnitude and sign of the gate, relative to the result: the tails count too.
TEST(Swiglu, GateIsAccurateFromZeroToHundred) {
  constexpr int64_t F = 20001;
  Buffer uv({1, 2 * F}, 1);
  for (int64_t i = 0; i < F; i++) uv[i] = float(i - F / 2) * 0.01f;
  const auto want = reference::swiglu(to_double(uv), size_t(F));
  const Buffer h = forward(uv);
  for (int64_t i = 0; i < F; i++)
    ASSERT_NEAR(h[i], want[size_t(i)], 3e-7 * std::abs(want[size_t(i)]) + 2e-36) << "u = " << uv[i];
}

TEST(Swiglu, HugeGatesAreFiniteAndNaNIsKept) {
  constexpr float kHuge = std::numeric_limits<float>::max();
  Buffer uv({1, 8}, 0.5f), duv({1, 8}), dh({1, 4}, 1);
  const float gates[] = {kHuge, -kHuge, 1000, NAN};
  std::copy(gates, gates + 4, uv.values.begin());
  const Buffer h = forward(uv);
  swiglu_backward(duv, dh, uv);
  EXPECT_EQ(h[0], kHuge / 2);
  EXPECT_EQ(h[1], 0);
  EXPECT_EQ(h[2], 500);
  EXPECT_TRUE(std::isnan(h[3]));
  EXPECT_EQ(duv[0], 0.5f);
  EXPECT_EQ(duv[1], 0);
  EXPECT_EQ(duv[4], kHuge);
  EXPECT_EQ(duv[5], 0);
  EXPECT_TRUE(std::isnan(duv[3]));
}

TEST(Swiglu, BackwardMatchesTheFormulaAndLeavesH) {
  for (const auto& [S, F] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 19}}) {
    const Buffer uv = random_buffer({S, 2 * F}, 1, 3), dh = random_buffer({S, F}, 2);
    Buffer duv({S, 2 * F}), dh_to_h = dh;
    swiglu_backward(duv, dh_to_h, uv);
    const auto want = reference::complex_step(to_double(uv), [&, F = F](const auto& v) {
      const auto h = reference::swiglu(v, size_t(F));
      reference::Complex loss = 0;
      for (size_t i = 0; i < h.size(); i++) loss += h[i] * double(dh[int64_t(i)]);
      return loss;
    });
    expect_close(duv.values, want, max_abs(dh) * max_abs(uv), 1);
    expect_same_bits(dh_to_h, forward(uv), "h");
  }
}

TEST(Swiglu, BackwardMayOverwriteUv) {
  Buffer uv = random_buffer({5, 2 * 19}, 1), duv({5, 2 * 19}), dh = random_buffer({5, 19}, 2), dh2 = dh;
  swiglu_backward(duv, dh, uv);
  swiglu_backward(uv, dh2, uv);
  expect_same_bits(uv, duv);
  expect_same_bits(dh, dh2);
}

TEST(Swiglu, HasTheSameBitsForAnyNumberOfThreadsAndRows) {
  const Buffer uv = random_buffer({301, 2 * 83}, 1), dh = random_buffer({301, 83}, 2);
  const auto back = [&] {
    Buffer duv(uv.shape), d = dh;
    swiglu_backward(duv, d, uv);
    return duv;
  };
  const Buffer one = with_threads(1, [&] { return forward(uv); }), one_back = with_threads(1, back);
  for (const int threads : {2, 5}) {
    expect_same_bits(with_threads(threads, [&] { return forward(uv); }), one);
    expect_same_bits(with_threads(threads, back), one_back);
  }
  Buffer last({1, 83});
  Buffer kept({1, 2 * 83});
  swiglu_forward(last, kept, uv.view().slice(300, 1));
  expect_same_bits(last.values.data(), one.values.data() + 300 * 83, 83, "a row alone");
}

// ---- row weights

TEST(SwigluWeighted, ForwardIsTheWeightTimesTheFormula) {
  const Buffer uv = random_buffer({5, 2 * 19}, 1, 3), w = random_buffer({5}, 2);
  Buffer h({5, 19}), kept = uv;
  swiglu_forward(h, kept, kept, w);
  std::vector<double> want = reference::swiglu(to_double(uv), 19);
  for (size_t i = 0; i < want.size(); i++) want[i] *= double(w[int64_t(i) / 19]);
  expect_close(h.values, want, max_abs(uv) * max_abs(uv) * max_abs(w), 1);
  Buffer moved({5, 2 * 19}), h2({5, 19});
  swiglu_forward(h2, moved, uv, w);
  expect_same_bits(h2, h);
  expect_same_bits(moved, uv);
}

TEST(SwigluWeighted, BackwardMatchesTheFormula) {
  for (const auto& [S, F] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 83}}) {
    const Buffer uv = random_buffer({S, 2 * F}, 1, 3), dh = random_buffer({S, F}, 2), w = random_buffer({S}, 3);
    Buffer duv({S, 2 * F}), dh_to_h = dh, dw({S});
    swiglu_backward(duv, dh_to_h, uv, {w, dw});
    const auto loss = [&, F = F](const reference::Vec<reference::Complex>& v,
                                 const reference::Vec<reference::Complex>& weight) {
      const auto h = reference::swiglu(v, size_t(F));
      reference::Complex sum = 0;
      for (size_t i = 0; i < h.size(); i++) sum += weight[i / size_t(F)] * h[i] * double(dh[int64_t(i)]);
      return sum;
    };
    const auto us = to_double(uv), ws = to_double(w);
    const reference::Vec<reference::Complex> uc(us.begin(), us.end()), wc(ws.begin(), ws.end());
    const double terms = max_abs(dh) * max_abs(uv) * max_abs(w);
    expect_close(duv.values, reference::complex_step(us, [&](const auto& v) { return loss(v, wc); }), terms, 1, "duv");
    expect_close(dw.values, reference::complex_step(ws, [&](const auto& v) { return loss(uc, v); }),
                 max_abs(dh) * max_abs(uv) * max_abs(uv), double(F), "dw");
    Buffer h({S, F}), kept = uv;
    swiglu_forward(h, kept, kept, w);
    expect_same_bits(dh_to_h, h, "h");
  }
}

TEST(SwigluWeighted, AWeightOfOneHasTheBitsOfNone) {
  Buffer uv = random_buffer({5, 2 * 19}, 1, 3), dh = random_buffer({5, 19}, 2), dh2 = dh;
  Buffer one({5}, 1), dw({5}), h({5, 19}), duv(uv.shape), duv2(uv.shape);
  swiglu_forward(h, uv, uv, one);
  expect_same_bits(h, forward(uv));
  swiglu_backward(duv, dh, uv);
  swiglu_backward(duv2, dh2, uv, {one, dw});
  expect_same_bits(duv, duv2);
  expect_same_bits(dh, dh2);
  EXPECT_THROW(swiglu_backward(duv, dh, uv, {Buffer({4}, 1).view(), dw}), Error);
}

TEST(Swiglu, NoRowsDoNothingAndWrongShapesAreRefused) {
  Buffer none({0, 3}), none2({0, 6}), h({2, 3}), uv({2, 5}, 0);
  swiglu_forward(none, none2, none2);
  swiglu_backward(none2, none, none2);
  EXPECT_THROW(swiglu_forward(h, uv, uv), Error);
  EXPECT_THROW(swiglu_backward(uv, h, uv), Error);
}

}  // namespace
}  // namespace isobath
