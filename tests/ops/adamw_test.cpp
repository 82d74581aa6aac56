#include "ops/adamw.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "reference/adamw.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

struct State {
  Buffer w, m, v, g;
  explicit State(int64_t n)
      : w(random_buffer({n}, 1)), m(random_buffer({n}, 2, 0.1f)), v(random_buffer({n}, 3)), g(random_buffer({n}, 4)) {
    for (float& x : v.values) x = 0.01f * std::abs(x);
  }
};
constexpr AdamW kOption{.lr = 0.01f, .beta1 = 0.8f, .beta2 = 0.9f, .eps = 1e-3f, .weight_decay = 0.2f};

State step(State s, const AdamW& option, float scale, int64_t t) {
  adamw_step(s.w, s.m, s.v, s.g, option, scale, t);
  return s;
}

TEST(AdamW, MatchesTheFormula) {
  for (const int64_t n : {1, 7, 64, 4099})
    for (const int64_t t : {1, 2, 1000}) {
      const State before(n), got = step(before, kOption, 0.5f, t);
      std::vector<double> w, m, v;
      for (int64_t i = 0; i < n; i++) {
        const reference::AdamState want = reference::adamw(
            {double(before.w[i]), double(before.m[i]), double(before.v[i])}, 0.5 * double(before.g[i]), kOption, t);
        w.push_back(want.w), m.push_back(want.m), v.push_back(want.v);
        // The step itself, which a tolerance for w alone would hide.
        ASSERT_NEAR(double(got.w[i]) - double(before.w[i]), want.w - double(before.w[i]),
                    1e-7 * std::abs(double(before.w[i])) + 2e-6 * std::abs(want.w - double(before.w[i])))
            << "n " << n << " t " << t;
      }
      expect_close(got.m.values, m, max_abs(before.m) + max_abs(before.g), 1, "m");
      expect_close(got.v.values, v, max_abs(before.v) + max_abs(before.g) * max_abs(before.g), 1, "v");
      expect_same_bits(got.g, Buffer({n}, 0), "g");
    }
}

// Decoupled: with no gradient and no moments the weight shrinks by lr * decay, however small that is.
TEST(AdamW, DecayIsDecoupled) {
  State s(5);
  s.m = s.v = s.g = Buffer({5}, 0);
  const State got = step(s, {.lr = 0.5f, .weight_decay = 0.25f}, 1, 1);
  for (int64_t i = 0; i < 5; i++) EXPECT_NEAR(got.w[i], 0.875f * s.w[i], 1e-7);
  expect_same_bits(step(s, {.lr = 0.5f, .weight_decay = 0}, 1, 1).w, s.w);
}

TEST(AdamW, FirstStepHasTheSizeOfTheLearningRate) {
  State s(7);
  s.m = s.v = Buffer({7}, 0);
  const State got = step(s, {.lr = 0.01f, .weight_decay = 0}, 1, 1);
  for (int64_t i = 0; i < 7; i++) EXPECT_NEAR(std::abs(got.w[i] - s.w[i]), 0.01f, 1e-6);
}

TEST(AdamW, BitsDoNotDependOnThreadsOrPlace) {
  const State s(30011);
  const auto run = [&] { return step(s, kOption, 0.5f, 3); };
  const State one = with_threads(1, run);
  for (const int threads : {2, 5}) {
    const State more = with_threads(threads, run);
    expect_same_bits(more.w, one.w, "w");
    expect_same_bits(more.m, one.m, "m");
    expect_same_bits(more.v, one.v, "v");
  }
  State part = s;  // an element's bits are the same wherever a share begins
  const auto from = [](Buffer& b) { return b.view().slice(4091, 9); };
  adamw_step(from(part.w), from(part.m), from(part.v), from(part.g), kOption, 0.5f, 3);
  expect_same_bits(part.w.values.data() + 4091, one.w.values.data() + 4091, 9, "a part");
}

TEST(AdamW, RefusesDifferentLengthsAndStepZero) {
  State s(5);
  Buffer four({4}, 0);
  EXPECT_THROW(adamw_step(s.w, s.m, s.v, four, kOption, 1, 1), Error);
  EXPECT_THROW(adamw_step(s.w, s.m, s.v, s.g, kOption, 1, 0), Error);
  step(State(0), kOption, 1, 1);
}

double sum(const Buffer& x) {
  std::vector<double> partial(size_t(x.shape[0] / kSumChunk + 1), NAN);
  return sum_of_squares(x, {partial.data(), {int64_t(partial.size())}});
}

TEST(SumOfSquares, IsAFloat64SumForAnyNumberOfThreads) {
  for (const int64_t n : {0, 1, 7, 31, 65536, 3 * 65536 + 1001}) {
    const Buffer x = random_buffer({n}, 1);
    long double want = 0;
    for (const float v : x.values) want += (long double)v * (long double)v;
    const double one = with_threads(1, [&] { return sum(x); });
    EXPECT_NEAR(one, double(want), 1e-13 * double(want));
    for (const int threads : {2, 5}) EXPECT_EQ(one, with_threads(threads, [&] { return sum(x); }));
  }
}

TEST(SumOfSquares, ShowsWhatIsNotFinite) {
  for (const int64_t at : {0, 5, 70000}) {
    Buffer x({70001}, 1e30f);  // whose squares no float holds
    EXPECT_TRUE(std::isfinite(sum(x)));
    x[at] = NAN;
    EXPECT_TRUE(std::isnan(sum(x)));
    x[at] = -INFINITY;
    EXPECT_TRUE(std::isinf(sum(x)));
  }
}

TEST(SumOfSquares, RefusesASmallScratch) {
  double one[1];
  EXPECT_THROW(sum_of_squares(Buffer({65537}, 0), {one, {1}}), Error);
}

}  // namespace
}  // namespace isobath
