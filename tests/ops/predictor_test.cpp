#include "ops/predictor.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/work.h"
#include "reference/gradient.h"
#include "reference/predictor.h"
#include "support/compare.h"
#include "support/thread_count.h"

namespace isobath {
namespace {

using namespace testing;
using reference::Complex;
using reference::Vec;

// Inputs, outputs and dirty accumulators of both directions for N rows.
struct Made {
  int64_t N, P;
  Buffer u, b1, w2, b2, dp;
  Buffer p{{N}}, after{{N, P}}, du{{N, P}}, db1, dw2, db2;

  Made(int64_t N, int64_t P, float spread = 2)
      : N(N),
        P(P),
        u(random_buffer({N, P}, 1, spread)),
        b1(random_buffer({P}, 2)),
        w2(random_buffer({P}, 3)),
        b2(random_buffer({1}, 4)),
        dp(random_buffer({N}, 5)),
        db1(random_buffer({P}, 6, 5)),
        dw2(random_buffer({P}, 7, 5)),
        db2(random_buffer({1}, 8, 5)) {}

  void forward() {
    after = u;
    predictor_forward(p, after, b1, w2, b2);
  }
  void backward() {
    du = after;
    Buffer partial({kGradChunks, 2 * P + 1});
    predictor_backward(du, add_to(db1), add_to(dw2), add_to(db2), dp, w2, partial);
  }
};

Vec<double> part(const Vec<double>& v, int64_t begin, int64_t count) {
  return {v.begin() + begin, v.begin() + begin + count};
}

TEST(Predictor, AgreesWithFloat64AndItsDerivative) {
  for (const auto& [N, P] : {std::pair<int64_t, int64_t>{1, 1}, {3, 16}, {5, 17}, {2, 33}, {70, 24}, {41, 65}}) {
    SCOPED_TRACE(fmt::format("N {} P {}", N, P));
    Made m(N, P);
    const Buffer dirty_db1 = m.db1, dirty_dw2 = m.dw2, dirty_db2 = m.db2;
    m.forward();
    m.backward();

    // One row's parameters and input as one vector: u, b1, w2, b2.
    const auto of = [P = P](const auto& v) {
      using T = typename std::decay_t<decltype(v)>::value_type;
      const auto at = [&](int64_t i) { return Vec<T>(v.begin() + i * P, v.begin() + (i + 1) * P); };
      return reference::predictor(at(0), at(1), at(2), v[size_t(3 * P)]);
    };
    Vec<double> want_db1 = to_double(dirty_db1), want_dw2 = to_double(dirty_dw2), want_db2 = to_double(dirty_db2);
    for (int64_t n = 0; n < N; n++) {
      Vec<double> v(m.u.view().row(n), m.u.view().row(n) + P);
      for (const Buffer* b : {&m.b1, &m.w2, &m.b2}) v.insert(v.end(), b->values.begin(), b->values.end());
      expect_close(Vec<float>{m.p[n]}, Vec<double>{of(v)}, 20, double(P), "p");
      const Vec<double> d = reference::complex_step(v, [&](const Vec<Complex>& z) { return double(m.dp[n]) * of(z); });
      expect_close(Vec<float>(m.du.view().row(n), m.du.view().row(n) + P), part(d, 0, P), 20, 1, "du");
      for (int64_t i = 0; i < P; i++) want_db1[size_t(i)] += d[size_t(P + i)];
      for (int64_t i = 0; i < P; i++) want_dw2[size_t(i)] += d[size_t(2 * P + i)];
      want_db2[0] += d[size_t(3 * P)];
    }
    expect_close(m.db1.values, want_db1, 20, double(N), "db1");
    expect_close(m.dw2.values, want_dw2, 20, double(N), "dw2");
    expect_close(m.db2.values, want_db2, 20, double(N), "db2");
  }
}

TEST(Predictor, LargeInputsDoNotOverflow) {
  for (const float large : {80.0f, 1e4f}) {
    Made m(2, 19);
    for (int64_t i = 0; i < 19; i++) m.b1[i] = 0, m.w2[i] = 1, m.u[i] = large, m.u[19 + i] = -large;
    m.forward();
    m.backward();
    EXPECT_FLOAT_EQ(m.p[0], 19 * large + m.b2[0]);
    EXPECT_FLOAT_EQ(m.p[1], m.b2[0]);
    for (int64_t i = 0; i < 19; i++) {
      EXPECT_FLOAT_EQ(m.du[i], m.dp[0]);
      EXPECT_NEAR(m.du[19 + i], 0, 1e-30);
    }
  }
}

TEST(Predictor, NonFiniteInputIsSeen) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Made m(1, 20);
    m.u[17] = bad;
    m.forward();
    EXPECT_FALSE(std::isfinite(m.p[0])) << bad;
  }
}

TEST(Predictor, BitsAreThoseOfOneThreadAndOfTheRowAlone) {
  const int64_t N = 1700, P = 24;
  std::vector<Made> all(2, Made(N, P));
  for (const int threads : {1, 2}) {
    const ThreadCount with(threads);
    all[size_t(threads - 1)].forward();
    all[size_t(threads - 1)].backward();
  }
  expect_same_bits(all[0].p, all[1].p, "p");
  expect_same_bits(all[0].du, all[1].du, "du");
  expect_same_bits(all[0].db1, all[1].db1, "db1");
  expect_same_bits(all[0].dw2, all[1].dw2, "dw2");
  expect_same_bits(all[0].db2, all[1].db2, "db2");
  Made one(1, P);
  std::copy_n(all[0].u.view().row(1234), P, one.u.values.data());
  one.forward();
  expect_same_bits(one.p.values.data(), &all[0].p[1234], 1, "p");
}

TEST(Predictor, NoRowsAddNothing) {
  Made m(0, 8);
  const Buffer before = m.dw2;
  m.forward();
  m.backward();
  expect_same_bits(m.dw2, before);
}

TEST(Predictor, CountsMultiplyAdds) {
  Made m(7, 16);
  const int64_t before = executed_multiply_adds;
  m.forward();
  EXPECT_EQ(executed_multiply_adds - before, 7 * 16);
  m.backward();
  EXPECT_EQ(executed_multiply_adds - before, 3 * 7 * 16);
}

TEST(Predictor, RefusesWrongShapes) {
  Made m(3, 8);
  Buffer short_p({2}), partial({kGradChunks, 2 * 8});
  EXPECT_THROW(predictor_forward(short_p, m.u, m.b1, m.w2, m.b2), Error);
  EXPECT_THROW(predictor_forward(m.p, m.u, m.b2, m.w2, m.b2), Error);
  EXPECT_THROW(predictor_backward(m.u, add_to(m.db1), add_to(m.dw2), add_to(m.db2), m.dp, m.w2, partial), Error);
}

}  // namespace
}  // namespace isobath
