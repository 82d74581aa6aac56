#include "ops/cross_entropy.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/cross_entropy.h"
#include "reference/gradient.h"
#include "support/compare.h"
#include "support/thread_count.h"

namespace isobath {
namespace {

using namespace testing;
using reference::Complex;
using reference::Vec;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Result {
  Buffer z, loss, entropy;
};

Result run(Buffer z, const std::vector<int32_t>& target, float scale) {
  const int64_t N = z.shape[0];
  Result r{std::move(z), Buffer({N}), Buffer({N})};
  cross_entropy(r.z, r.loss, r.entropy, {target.data(), {N}}, scale);
  return r;
}

std::vector<int32_t> some_targets(int64_t N, int64_t V) {
  std::vector<int32_t> target;
  for (int64_t n = 0; n < N; n++) target.push_back(n % 5 == 3 ? -1 : int32_t(n * 7 % V));
  if (V > 1 && N > 2) target[2] = int32_t(V - 1);
  return target;
}

Vec<double> row(const Buffer& z, int64_t n) {
  const float* at = z.view().row(n);
  return {at, at + z.shape.cols()};
}

TEST(CrossEntropy, AgreesWithFloat64AndItsDerivative) {
  for (const auto& [N, V, spread] : {std::tuple<int64_t, int64_t, float>{1, 1, 1.0f},
                                     {5, 2, 3.0f},
                                     {7, 15, 1.0f},
                                     {9, 16, 1.0f},
                                     {33, 33, 4.0f},
                                     {6, 257, 2.0f},
                                     {3, 1003, 5.0f}}) {
    SCOPED_TRACE(fmt::format("N {} V {}", N, V));
    const Buffer z = random_buffer({N, V}, 1, spread);
    const auto target = some_targets(N, V);
    const float scale = 0.37f;
    const Result got = run(z, target, scale);
    for (int64_t n = 0; n < N; n++) {
      const Vec<double> zn = row(z, n), dz = row(got.z, n);
      const int32_t t = target[size_t(n)];
      const double terms = 1 + max_abs(z) + std::log(double(V));
      expect_close(Vec<float>{got.entropy[n]}, Vec<double>{reference::softmax_entropy(zn)}, terms, 1, "entropy");
      Vec<double> want(size_t(V), 0.0);
      double want_loss = 0;
      if (t >= 0) {
        want_loss = reference::cross_entropy(zn, size_t(t));
        want = reference::complex_step(
            zn, [&](const Vec<Complex>& v) { return double(scale) * reference::cross_entropy(v, size_t(t)); });
      }
      expect_close(Vec<float>{got.loss[n]}, Vec<double>{want_loss}, terms, 1, "loss");
      expect_close(dz, want, double(scale), 1, "dz");
    }
  }
}

TEST(CrossEntropy, RowsWithoutTargetAreNotScored) {
  const Result got = run(random_buffer({2, 21}, 1), {-1, 3}, 1.0f);
  EXPECT_EQ(got.loss[0], 0);
  EXPECT_GT(got.entropy[0], 0);
  for (int64_t v = 0; v < 21; v++) EXPECT_EQ(got.z[v], 0);
}

TEST(CrossEntropy, ScaleZeroLeavesTheLogits) {
  const Buffer z = random_buffer({4, 35}, 1);
  const Result dry = run(z, {0, 5, -1, 34}, 0), wet = run(z, {0, 5, -1, 34}, 1);
  expect_same_bits(dry.z, z, "z");
  expect_same_bits(dry.loss, wet.loss, "loss");
  expect_same_bits(dry.entropy, wet.entropy, "entropy");
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  for (const float large : {80.0f, 1e4f, 1e30f}) {
    Buffer z({2, 19}, -large);
    z[4] = large;
    z[19 + 4] = large;
    const Result got = run(z, {4, 7}, 1);
    EXPECT_EQ(got.loss[0], 0) << large;
    EXPECT_EQ(got.loss[1], 2 * large);
    EXPECT_NEAR(got.entropy[0], 0, 1e-30);
    EXPECT_EQ(got.z[4], 0);
    EXPECT_EQ(got.z[19 + 4], 1);
    EXPECT_EQ(got.z[19 + 7], -1);
    EXPECT_NEAR(got.z[0], 0, 1e-30);
  }
  const Result flat = run(Buffer({1, 1024}, 1e4f), {3}, 0);
  EXPECT_FLOAT_EQ(flat.loss[0], float(std::log(1024.0)));
  EXPECT_FLOAT_EQ(flat.entropy[0], float(std::log(1024.0)));
}

TEST(CrossEntropy, NonFiniteLogitsAreSeenFromEveryColumn) {
  for (const int64_t V : {int64_t(3), int64_t(37)})
    for (const float bad : {kNaN, kInf, -kInf})
      for (int64_t v = 0; v < V; v++) {
        Buffer z = random_buffer({1, V}, 1);
        z[v] = bad;
        const Result got = run(z, {1}, 0);
        EXPECT_FALSE(std::isfinite(got.loss[0])) << bad << " in column " << v << " of " << V;
        EXPECT_FALSE(std::isfinite(got.entropy[0])) << bad << " in column " << v << " of " << V;
      }
}

TEST(CrossEntropy, RowBitsDependOnTheRowAlone) {
  const int64_t N = 300, V = 131;
  const Buffer z = random_buffer({N, V}, 1, 3);
  const auto target = some_targets(N, V);
  std::vector<Result> all;
  for (const int threads : {1, 2}) {
    const ThreadCount with(threads);
    all.push_back(run(z, target, 0.5f));
  }
  expect_same_bits(all[0].z, all[1].z, "z");
  expect_same_bits(all[0].loss, all[1].loss, "loss");
  expect_same_bits(all[0].entropy, all[1].entropy, "entropy");
  for (const int64_t n : {0, 1, 77, 299}) {
    Buffer one({1, V});
    std::copy_n(z.view().row(n), V, one.values.data());
    const Result alone = run(one, {target[size_t(n)]}, 0.5f);
    expect_same_bits(alone.z.values.data(), all[0].z.view().row(n), V, "z");
    expect_same_bits(alone.loss.values.data(), &all[0].loss[n], 1, "loss");
    expect_same_bits(alone.entropy.values.data(), &all[0].entropy[n], 1, "entropy");
  }
}

TEST(CrossEntropy, RefusesWrongArguments) {
  EXPECT_THROW(run(Buffer({1, 4}, 0), {4}, 1), Error);
  EXPECT_THROW(run(Buffer({1, 4}, 0), {-2}, 1), Error);
  Buffer z({2, 4}, 0), loss({2}), entropy({1});
  const std::vector<int32_t> target = {0, 0};
  EXPECT_THROW(cross_entropy(z, loss, entropy, {target.data(), {2}}, 1), Error);
}

}  // namespace
}  // namespace isobath
