#include "ops/bce.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/bce.h"
#include "reference/gradient.h"
#include "support/compare.h"
#include "support/thread_count.h"

namespace isobath {
namespace {

using namespace testing;
using reference::Complex;
using reference::Vec;

CI32 view(const std::vector<int32_t>& index) { return {index.data(), {int64_t(index.size())}}; }

std::vector<int32_t> every(int64_t step, int64_t N, int64_t first = 0) {
  std::vector<int32_t> index;
  for (int64_t n = first; n < N; n += step) index.push_back(int32_t(n));
  return index;
}

// Loss and gradient of N rows in float64; `chosen` holds 0 or 1.
double want_loss(const Vec<double>& r, const Vec<double>& chosen) {
  double sum = 0;
  for (size_t n = 0; n < r.size(); n++) sum += reference::bce_with_logit(r[n], chosen[n]);
  return sum;
}

TEST(Bce, AgreesWithFloat64AndItsDerivative) {
  for (const auto& [N, step, first] :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 0}, {1, 2, 1}, {31, 8, 5}, {33, 1, 0}, {77, 3, 1}, {3001, 8, 7}}) {
    SCOPED_TRACE(fmt::format("N {} every {} from {}", N, step, first));
    const Buffer r = random_buffer({N}, 1, 4), dirty = random_buffer({N}, 2, 3);
    const auto index = every(step, N, first);
    Vec<double> chosen(size_t(N), 0.0);
    for (const int32_t n : index) chosen[size_t(n)] = 1;
    const float scale = 0.13f;
    Buffer dr = dirty;
    Agreement agreement;
    const double loss = bce_with_logits(add_to(dr), agreement, r, view(index), scale);
    const Vec<double> want = to_double(r);
    EXPECT_NEAR(loss, want_loss(want, chosen), 1e-12 * double(N) * 20);
    for (int64_t n = 0; n < N; n++) {
      const auto gradient = reference::complex_step(Vec<double>{want[size_t(n)]}, [&](const Vec<Complex>& v) {
        return double(scale) * reference::bce_with_logit(v[0], chosen[size_t(n)]);
      });
      expect_close(Vec<float>{dr[n]}, Vec<double>{dirty[n] + gradient[0]}, 12, 1, "dr");
    }
  }
}

TEST(Bce, TakesLogitsOnce) {
  const Buffer r({2}, 5.0f);
  Agreement agreement;
  const std::vector<int32_t> index = {0};
  EXPECT_NEAR(bce_with_logits({}, agreement, r, view(index), 1), 2 * 0.006715348489118 + 5, 1e-12);
}

TEST(Bce, CountsTheRuleAgainstTheChoice) {
  Buffer r({6}, 0);  // 0 is not over the threshold
  r[1] = 2, r[2] = -1, r[3] = 3, r[5] = 1e-20f;
  const std::vector<int32_t> index = {1, 2};
  Agreement a{.rows = 100, .chosen = 100, .said = 100, .both = 100};
  bce_with_logits({}, a, r, view(index), 1);
  EXPECT_EQ(a.rows, 6);
  EXPECT_EQ(a.chosen, 2);
  EXPECT_EQ(a.said, 3);
  EXPECT_EQ(a.both, 1);
  EXPECT_DOUBLE_EQ(a.accuracy(), 3.0 / 6);
  EXPECT_DOUBLE_EQ(a.precision(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(a.recall(), 1.0 / 2);
  EXPECT_DOUBLE_EQ(a.base_rate(), 4.0 / 6);
  EXPECT_DOUBLE_EQ(a.share(), 3.0 / 6);
}

TEST(Bce, LargeLogitsDoNotOverflow) {
  for (const float large : {80.0f, 1e4f, 3e38f}) {
    Buffer r({4}, large), dr({4}, 0);
    r[1] = r[3] = -large;
    const std::vector<int32_t> index = {0, 1};
    Agreement a;
    EXPECT_NEAR(bce_with_logits(add_to(dr), a, r, view(index), 1) / large, 2, 1e-12);
    EXPECT_NEAR(dr[0], 0, 1e-30);
    EXPECT_EQ(dr[1], -1);
    EXPECT_EQ(dr[2], 1);
    EXPECT_NEAR(dr[3], 0, 1e-30);
  }
}

TEST(Bce, NonFiniteLogitsNeverPassSilently) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf})
    for (const std::vector<int32_t>& index : {std::vector<int32_t>{}, {1}, {0}}) {
      Buffer r({3}, 0.5f);
      r[1] = bad;
      Agreement a;
      EXPECT_FALSE(std::isfinite(bce_with_logits({}, a, r, view(index), 1))) << bad;
    }
}

TEST(Bce, BitsAreThoseOfOneThread) {
  const int64_t N = 4099;
  const Buffer r = random_buffer({N}, 1, 3);
  const auto index = every(8, N);
  std::vector<Buffer> dr;
  std::vector<double> loss;
  for (const int threads : {1, 2}) {
    const ThreadCount with(threads);
    dr.emplace_back(random_buffer({N}, 2));
    Agreement a;
    loss.push_back(bce_with_logits(add_to(dr.back()), a, r, view(index), 0.3f));
  }
  expect_same_bits(dr[0], dr[1], "dr");
  EXPECT_EQ(loss[0], loss[1]);
}

TEST(Bce, NoRows) {
  Agreement a;
  EXPECT_EQ(bce_with_logits({}, a, Buffer({0}), {}, 1), 0);
  EXPECT_EQ(a.rows, 0);
  EXPECT_EQ(a.accuracy(), 0);
}

TEST(Bce, RefusesWrongArguments) {
  const Buffer r({3}, 0);
  Buffer short_dr({2}, 0);
  Agreement a;
  for (const std::vector<int32_t>& index : {std::vector<int32_t>{1, 1}, {2, 0}, {3}, {-1}})
    EXPECT_THROW(bce_with_logits({}, a, r, view(index), 1), Error);
  EXPECT_THROW(bce_with_logits(add_to(short_dr), a, r, {}, 1), Error);
}

}  // namespace
}  // namespace isobath
