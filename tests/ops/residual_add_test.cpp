#include "ops/residual_add.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "reference/gradient.h"
#include "reference/residual_add.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

struct Case {
  int64_t N, S, D;
  Buffer x, gate, a, m;
  List index;
  Case(int64_t n, int64_t s, int64_t d)
      : N(n),
        S(s),
        D(d),
        x(random_buffer({n, d}, 1)),
        gate(random_buffer({s}, 2)),
        a(random_buffer({s, d}, 3)),
        m(random_buffer({s, d}, 4)),
        index(random_rows(s, n, 5)) {}
};
const Case kCases[] = {{1, 1, 1}, {5, 3, 7}, {9, 4, 64}, {70, 67, 83}};

Buffer forward(const Case& c, CF32 gate, CF32 m) {
  Buffer x = c.x;
  residual_add_forward(x, {}, c.index, gate, c.a, m);
  return x;
}

Buffer delta_of(const Case& c) {
  Buffer delta({c.S, c.D});
  for (int64_t i = 0; i < c.S * c.D; i++) delta[i] = c.a[i] + c.m[i];
  return delta;
}

struct Backward {
  Buffer ddelta, dgate;
};
Backward backward(const Case& c, const Buffer& dx, CF32 gate) {
  Backward b{Buffer({c.S, c.D}), Buffer({c.S})};
  residual_add_backward(b.ddelta, b.dgate, dx, c.index, gate, delta_of(c));
  return b;
}

TEST(ResidualAdd, ForwardMatchesTheFormulaAndLeavesOtherRows) {
  for (const Case& c : kCases)
    for (const bool gated : {false, true})
      for (const bool both : {false, true}) {
        const Buffer got = forward(c, gated ? CF32(c.gate) : CF32(), both ? CF32(c.m) : CF32());
        const Buffer zeros(c.m.shape, 0), ones(c.gate.shape, 1);
        const auto want = reference::residual_add(to_double(c.x), c.index.values, to_double(gated ? c.gate : ones),
                                                  to_double(c.a), to_double(both ? c.m : zeros));
        expect_close(got.values, want, max_abs(c.x) + (1 + max_abs(c.gate)) * (max_abs(c.a) + max_abs(c.m)), 1);
        for (int64_t n = 0; n < c.N; n++)
          if (!std::binary_search(c.index.values.begin(), c.index.values.end(), int32_t(n)))
            expect_same_bits(got.values.data() + n * c.D, c.x.values.data() + n * c.D, c.D, "another row");
      }
}

TEST(ResidualAdd, AGateOfOneHasTheBitsOfNoGate) {
  for (const Case& c : kCases)
    for (const CF32 m : {CF32(), CF32(c.m)}) {
      const Buffer ones({c.S}, 1), dx = random_buffer({c.N, c.D}, 6);
      expect_same_bits(forward(c, ones, m), forward(c, {}, m));
      expect_same_bits(backward(c, dx, ones).ddelta, backward(c, dx, {}).ddelta);
    }
}

// What is kept for backward is a + m; x has the bits it has when nothing is kept.
TEST(ResidualAdd, DeltaIsKeptOnRequest) {
  for (const Case& c : kCases) {
    Buffer x = c.x, delta({c.S, c.D}), alone({c.S, c.D});
    residual_add_forward(x, delta, c.index, c.gate, c.a, c.m);
    expect_same_bits(delta, delta_of(c));
    expect_same_bits(x, forward(c, c.gate, c.m));
    residual_add_forward({}, alone, {}, {}, c.a, c.m);
    expect_same_bits(alone, delta, "without x");
  }
}

TEST(ResidualAdd, AGateOfZeroIsTheIdentity) {
  const Case c(70, 67, 83);
  const Buffer got = forward(c, Buffer({c.S}, 0), c.m);
  for (int64_t i = 0; i < c.x.shape.numel(); i++) ASSERT_EQ(got[i], c.x[i]);
}

TEST(ResidualAdd, BackwardMatchesTheFormula) {
  using reference::Complex, reference::Vec;
  for (const Case& c : kCases) {
    const Buffer dx = random_buffer({c.N, c.D}, 6);
    const auto lift = [](const Buffer& b) { return Vec<Complex>(b.values.begin(), b.values.end()); };
    const auto loss = [&](const auto& gate, const auto& a) {
      const auto y = reference::residual_add(lift(c.x), c.index.values, gate, a, lift(c.m));
      Complex sum = 0;
      for (size_t i = 0; i < y.size(); i++) sum += y[i] * double(dx[int64_t(i)]);
      return sum;
    };
    const Backward got = backward(c, dx, c.gate);
    const auto dgate = reference::complex_step(to_double(c.gate), [&](const auto& g) { return loss(g, lift(c.a)); });
    expect_close(got.dgate.values, dgate, max_abs(dx) * (max_abs(c.a) + max_abs(c.m)), double(c.D), "dgate");
    if (c.S * c.D > 1000) continue;
    const auto ddelta = reference::complex_step(to_double(c.a), [&](const auto& a) { return loss(lift(c.gate), a); });
    expect_close(got.ddelta.values, ddelta, max_abs(dx) * max_abs(c.gate), 1, "ddelta");
  }
}

TEST(ResidualAdd, GateGradientIsLeftOutOnRequest) {
  const Case c(5, 3, 7);
  const Buffer dx = random_buffer({5, 7}, 6);
  Buffer ddelta({3, 7});
  residual_add_backward(ddelta, {}, dx, c.index, c.gate, {});
  expect_same_bits(ddelta, backward(c, dx, c.gate).ddelta);
}

TEST(ResidualAdd, ScatterAddAndRouterInputMatchTheFormula) {
  for (const Case& c : kCases)
    for (const bool both : {false, true}) {
      Buffer dx = c.x;
      scatter_add(dx, c.index, c.a, both ? CF32(c.m) : CF32());
      expect_same_bits(dx, forward(c, {}, both ? CF32(c.m) : CF32()), "scatter_add");
    }
  for (const Case& c : kCases) {
    Buffer dx = c.x;
    const Buffer dr = random_buffer({c.N}, 7), w = random_buffer({c.D}, 8);
    router_backward_input(dx, dr, w);
    auto want = to_double(c.x);
    for (int64_t i = 0; i < c.N * c.D; i++) want[size_t(i)] += double(dr[i / c.D]) * double(w[i % c.D]);
    expect_close(dx.values, want, max_abs(c.x) + max_abs(dr) * max_abs(w), 1, "router_backward_input");
  }
}

TEST(ResidualAdd, AnIndexLeftOutMeansRowS) {
  Case c(4, 4, 7);
  Buffer x = c.x;
  residual_add_forward(x, {}, {}, c.gate, c.a, c.m);
  expect_same_bits(x, forward(c, c.gate, c.m));
}

TEST(ResidualAdd, HasTheSameBitsForAnyNumberOfThreadsAndRows) {
  const Case c(400, 301, 83);
  const Buffer dx = random_buffer({c.N, c.D}, 6), dr = random_buffer({c.N}, 7), w = random_buffer({c.D}, 8);
  const auto run = [&] {
    const Backward b = backward(c, dx, c.gate);
    Buffer scattered = c.x, routed = c.x;
    scatter_add(scattered, c.index, c.a, c.m);
    router_backward_input(routed, dr, w);
    return std::array<Buffer, 5>{forward(c, c.gate, c.m), b.ddelta, b.dgate, scattered, routed};
  };
  const auto one = with_threads(1, run);
  for (const int threads : {2, 5}) {
    const auto more = with_threads(threads, run);
    for (size_t i = 0; i < one.size(); i++) expect_same_bits(more[i], one[i]);
  }
  Buffer x({1, 83});
  const int64_t n = c.index[300];
  std::copy_n(c.x.values.begin() + n * 83, 83, x.values.begin());
  residual_add_forward(x, {}, List{0}, c.gate.view().slice(300, 1), c.a.view().slice(300, 1), c.m.view().slice(300, 1));
  expect_same_bits(x.values.data(), one[0].values.data() + n * 83, 83, "a row alone");
}

TEST(ResidualAdd, NoRowsDoNothing) {
  const Case c(4, 0, 3);
  expect_same_bits(forward(c, c.gate, c.m), c.x);
  backward(c, c.x, c.gate);
  Buffer dx = c.x;
  scatter_add(dx, c.index, c.a, {});
  expect_same_bits(dx, c.x);
}

TEST(ResidualAdd, RefusesWrongShapesAndRepeatedRows) {
  const Case c(5, 3, 7);
  Buffer x = c.x, ddelta({3, 7}), dgate({3});
  EXPECT_THROW(residual_add_forward(x, {}, List{0, 2, 2}, {}, c.a, {}), Error);
  EXPECT_THROW(residual_add_forward(x, {}, List{0, 2, 5}, {}, c.a, {}), Error);
  EXPECT_THROW(residual_add_forward(x, {}, c.index, Buffer({2}), c.a, {}), Error);
  EXPECT_THROW(residual_add_forward(x, {}, c.index, {}, c.a, Buffer({3, 6})), Error);
  EXPECT_THROW(residual_add_backward(ddelta, dgate, x, c.index, {}, {}), Error);
  EXPECT_THROW(residual_add_forward(x, Buffer({3, 6}), c.index, {}, c.a, {}), Error);
  EXPECT_THROW(residual_add_forward({}, {}, {}, {}, c.a, {}), Error);
  EXPECT_THROW(scatter_add(x, List{2, 1, 0}, c.a, {}), Error);
  EXPECT_THROW(router_backward_input(x, dgate, c.gate), Error);
}

}  // namespace
}  // namespace isobath
