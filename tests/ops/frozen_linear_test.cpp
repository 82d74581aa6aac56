#include "ops/frozen_linear.h"

#include <gtest/gtest.h>

#include "base/simd.h"
// After simd.h, which says what is built.
#include <hwy/highway.h>

#include <array>
#include <numeric>

#include "base/error.h"
#include "base/work.h"
#include "ops/linear.h"
#include "reference/frozen_linear.h"
#include "reference/linear.h"
#include "support/compare.h"
#include "support/frozen_linear.h"
#include "support/thread_count.h"

namespace isobath {
namespace {

using namespace testing;

// |got - want| within 8 roundings of the sum of |terms| of each element.
void expect_near(const Buffer& got, const std::vector<double>& want, const std::vector<double>& terms) {
  for (size_t i = 0; i < want.size(); i++)
    ASSERT_LE(std::abs(double(got.values[i]) - want[i]), 8 * double(std::numeric_limits<float>::epsilon()) * terms[i])
        << i << ": got " << got.values[i] << ", want " << want[i];
}

// While it lives, kernels of one instruction set are chosen, or of a lesser one.
class InstructionSet {
 public:
  explicit InstructionSet(int64_t set) { choose(set); }
  InstructionSet(const InstructionSet&) = delete;
  ~InstructionSet() { choose(0); }

 private:
  static void choose(int64_t set) {
    hwy::SetSupportedTargetsForTest(set);
    hwy::GetChosenTarget().DeInit();  // the next call chooses again
  }
};

std::vector<double> absolute(std::vector<double> values) {
  for (double& v : values) v = std::abs(v);
  return values;
}

// Sizes around the panel of 32 columns, the group of 32, blocks of 12, 8 and 6 rows, chains of 512, int8 chunks of
// 3072.
const std::vector<std::array<int64_t, 3>> kSizes = {{1, 1, 1},     {1, 64, 32},     {2, 63, 7},   {3, 65, 33},
                                                    {4, 257, 31},  {5, 1, 64},      {6, 64, 100}, {7, 130, 96},
                                                    {13, 63, 600}, {16, 257, 129},  {64, 65, 40}, {300, 64, 17},
                                                    {121, 1, 513}, {245, 66, 1100}, {9, 40, 3200}};

TEST(FrozenLinear, AgreesWithFloat64) {
  for (const auto& [M, N, K] : kSizes)
    for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
      SCOPED_TRACE(fmt::format("M {} N {} K {} {}", M, N, K, name_of(format)));
      Frozen frozen(N, K, M, format);
      const Buffer x = random_buffer({M, K}, 2);
      auto W = to_double(frozen.W);
      if (format == WeightFormat::kBf16)
        for (double& w : W) w = reference::to_bf16(w);
      const auto X = to_double(x);
      expect_near(frozen.forward(x), reference::linear_forward(X, W, M, N, K),
                  reference::linear_forward(absolute(X), absolute(W), M, N, K));
    }
}

TEST(FrozenLinear, OfInt8IsTheProductOfTheRoundedNumbers) {
  for (const auto& [M, N, K] : kSizes) {
    SCOPED_TRACE(fmt::format("M {} N {} K {}", M, N, K));
    Frozen frozen(N, K, M, WeightFormat::kInt8);
    const Buffer x = random_buffer({M, K}, 2);
    std::vector<double> terms;
    const auto want = reference::quantized_product(reference::quantize_rows(x.values, M, K),
                                                   reference::quantize_weights(frozen.W.values, N, K), M, N, K, terms);
    expect_near(frozen.forward(x), want, terms);
  }
}

TEST(FrozenLinear, OfInt8IsNearTheProduct) {
  const int64_t M = 9, N = 70, K = 777;
  Frozen exact(N, K, M, WeightFormat::kF32), rounded(N, K, M, WeightFormat::kInt8);
  const Buffer x = random_buffer({M, K}, 2), want = exact.forward(x), got = rounded.forward(x);
  double error = 0, size = 0;
  for (int64_t i = 0; i < M * N; i++) {
    error += std::pow(double(got[i]) - double(want[i]), 2);
    size += std::pow(double(want[i]), 2);
  }
  // Both factors are rounded to steps of some 2.2 / 127: each adds an error of 0.5% of the result.
  EXPECT_LT(std::sqrt(error / size), 0.009);
  EXPECT_GT(std::sqrt(error / size), 0.004);
}

TEST(FrozenLinear, Int8CodesAreOfTheStatedFormat) {
  const int64_t N = 5, K = 75, G = 3;
  const Buffer W = random_buffer({N, K}, 1);
  std::vector<int8_t> code(size_t(N * K));
  std::vector<uint16_t> scale(size_t(N * G));
  quantize_int8({code.data(), {N, K}}, {scale.data(), {N, G}}, W);
  const auto want = reference::quantize_weights(W.values, N, K);
  for (size_t i = 0; i < code.size(); i++) EXPECT_EQ(code[i], want.code[i]) << i;
  for (size_t i = 0; i < scale.size(); i++) {
    const uint32_t bits = uint32_t(scale[i]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    EXPECT_EQ(double(value), want.scale[i]) << i;
  }

  Frozen from_weights(N, K, 4, WeightFormat::kInt8), from_codes(N, K, 4, WeightFormat::kInt8);
  from_codes.linear.pack({code.data(), {N, K}}, {scale.data(), {N, G}});
  const Buffer x = random_buffer({4, K}, 2);
  expect_same_bits(from_weights.forward(x), from_codes.forward(x));
}

void expect_rows_alone(WeightFormat format, int64_t N, int64_t K, const std::vector<int64_t>& lengths) {
  constexpr int64_t most = 300;
  const Buffer x = random_buffer({most, K}, 5);
  const Frozen frozen(N, K, most, format);
  const Buffer want = frozen.forward(x);
  for (const int threads : {1, 2, 7})
    for (const int64_t M : lengths) {
      const ThreadCount with(threads);
      const Buffer got = frozen.forward(x, most - M, M);
      ASSERT_EQ(std::memcmp(got.values.data(), want.view().row(most - M), got.values.size() * sizeof(float)), 0)
          << fmt::format("{} N {} K {} M {} threads {}", name_of(format), N, K, M, threads);
    }
}

TEST(FrozenLinear, RowBitsDependOnTheRowAlone) {
  std::vector<int64_t> lengths(14);
  std::iota(lengths.begin(), lengths.end(), 1);
  for (const int64_t M : {16, 17, 24, 25, 64, 127, 299, 300}) lengths.push_back(M);
  for (const auto format : kFormats)
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{257, 96}, {65, 1100}, {1, 64}, {384, 600}})
      expect_rows_alone(format, N, K, lengths);
}

// Int8 sums are exact in groups, and all instruction sets with fused multiply-adds add alike.
TEST(FrozenLinear, AgreesOnEveryInstructionSet) {
  constexpr int64_t M = 29, N = 77, K = 611;
  const Buffer x = random_buffer({M, K}, 2);
  for (const auto format : kFormats) {
    const Buffer want = Frozen(N, K, M, format).forward(x);
    for (const int64_t set : hwy::SupportedAndGeneratedTargets()) {
      SCOPED_TRACE(fmt::format("{} {}", hwy::TargetName(set), name_of(format)));
      const InstructionSet only(set);  // without the instruction for bytes, too
      const Buffer got = Frozen(N, K, M, format).forward(x);
      if (set == HWY_AVX2 || set == HWY_AVX3)
        expect_same_bits(got, want);
      else
        expect_close(got.values, want.values, 16, double(K));
      for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 40}, {33, 600}})
        expect_rows_alone(format, n, k, {1, 2, 3, 4, 5, 6, 7, 12, 13, 40, 299});
    }
  }
}

TEST(FrozenLinear, HasTheBitsOfLinear) {
  if (linear_library().find("avx512") == std::string::npos) GTEST_SKIP() << "kernel here: " << linear_library();
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{384, 384},
                             {1152, 384},
                             {384, 1024},
                             {257, 384},
                             {64, 64},
                             {352, 64},
                             {64, 176},
                             {768, 768},
                             {2048, 768},
                             {768, 2048},
                             {300, 4096},
                             {1, 100},
                             {65, 33}}) {
    const std::vector<int64_t> lengths = {1, 5, 16, 100};
    const Frozen frozen(N, K, 100, WeightFormat::kF32);
    EXPECT_TRUE(frozen.linear.matches_linear());
    Linear linear;
    Plan plan;
    linear.plan(plan, "test", {.N = N, .K = K, .max_rows = 100, .exact = lengths, .backward = false});
    const Arena arena(plan);
    linear.pack(frozen.W);
    const Buffer x = random_buffer({100, K}, 2);
    for (const int64_t M : lengths) {
      Buffer want({M, N});
      linear.forward(want, x.view().slice(0, M));
      const Buffer got = frozen.forward(x, 0, M);
      ASSERT_EQ(std::memcmp(got.values.data(), want.values.data(), got.values.size() * sizeof(float)), 0)
          << fmt::format("N {} K {} M {} chain {}", N, K, M, frozen.linear.chain());
    }
  }
}

TEST(FrozenLinear, OfBf16HasTheBitsOfRoundedWeights) {
  const int64_t M = 13, N = 130, K = 700;
  const Frozen bf16(N, K, M, WeightFormat::kBf16);
  Frozen rounded(N, K, M, WeightFormat::kF32);
  for (float& w : rounded.W.values) w = float(reference::to_bf16(double(w)));
  rounded.linear.pack(rounded.W);
  const Buffer x = random_buffer({M, K}, 2);
  expect_same_bits(bf16.forward(x), rounded.forward(x));
}

TEST(FrozenLinear, NeitherReadsNorWritesBeyondItsRows) {
  for (const auto format : kFormats)
    for (const int64_t M : {1, 8, 21}) {
      const int64_t N = 37, K = 19;
      const Frozen frozen(N, K, 64, format);
      Buffer x = random_buffer({M + 1, K}, 2), y({M + 1, N}, 7.0f);
      for (int64_t k = 0; k < K; k++) x[M * K + k] = std::numeric_limits<float>::quiet_NaN();
      frozen.linear.forward(y.view().slice(0, M), x.view().slice(0, M));
      for (int64_t i = 0; i < M * N; i++) ASSERT_TRUE(std::isfinite(y[i])) << i;
      for (int64_t n = 0; n < N; n++) EXPECT_EQ(y[M * N + n], 7.0f);
    }
}

TEST(FrozenLinear, NoRowsIsNoWork) {
  for (const auto format : kFormats) {
    const Frozen frozen(8, 4, 16, format);
    Buffer y({0, 8}), x({0, 4});
    frozen.linear.forward(y, x);
  }
}

// One row is not finite, or one weight: its results are not, the others are.
TEST(FrozenLinear, NonFiniteValuesAreSeen) {
  const int64_t M = 8, N = 70, K = 40;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    for (const auto format : kFormats) {
      Frozen frozen(N, K, M, format);
      Buffer x = random_buffer({M, K}, 2);
      x[3 * K + 39] = bad;
      frozen.W[66 * K + 5] = bad;
      frozen.linear.pack(frozen.W);
      const Buffer y = frozen.forward(x);
      for (int64_t i = 0; i < M * N; i++) EXPECT_EQ(std::isfinite(y[i]), i / N != 3 && i % N != 66) << i;
    }
}

TEST(FrozenLinear, OfInt8TakesTinyGroupsForZeros) {
  const int64_t M = 2, N = 3, K = 64;
  std::vector<Buffer> y;
  for (const float tiny : {0.0f, 1e-44f, 1e-38f, 9e-31f}) {
    Frozen frozen(N, K, M, WeightFormat::kInt8);
    Buffer x = random_buffer({M, K}, 2);
    for (int64_t k = 0; k < 32; k++) frozen.W[K + 32 + k] = tiny, x[k] = tiny;
    frozen.linear.pack(frozen.W);
    y.push_back(frozen.forward(x));
    expect_same_bits(y.back(), y[0]);
  }
}

TEST(FrozenLinear, Bf16RoundsHalvesToEven) {
  Frozen frozen(1, 4, 1, WeightFormat::kBf16);
  Buffer x({1, 4}, 0);
  const float half = 1.0f / 256, W[] = {1 + half, 1 + 3 * half, 1 + 1.001f * half, -1 - half},
              rounded[] = {1, 1 + 4 * half, 1 + 2 * half, -1};
  std::copy_n(W, 4, frozen.W.values.begin());
  frozen.linear.pack(frozen.W);
  for (int64_t k = 0; k < 4; k++) {
    x[k] = 1;
    EXPECT_EQ(frozen.forward(x)[0], rounded[k]) << k;
    x[k] = 0;
  }
}

// Scratch is shared by the FrozenLinears of a plan, and dirty.
TEST(FrozenLinear, SharesScratchWithTheOthersOfItsPlan) {
  const int64_t M = 20, N = 96, K = 33;
  const Frozen alone(N, K, M, WeightFormat::kInt8);
  const Buffer x = random_buffer({M, K}, 2), want = alone.forward(x);
  Plan plan;
  FrozenLinear linears[3];
  for (FrozenLinear& linear : linears)
    linear.plan(plan, "test", {.N = N, .K = K, .max_rows = M, .format = WeightFormat::kInt8});
  EXPECT_EQ(plan.bytes() - plan.scratch_offset(), alone.plan.bytes() - alone.plan.scratch_offset());
  const Arena arena(plan);
  std::fill_n(arena.data() + plan.scratch_offset(), plan.bytes() - plan.scratch_offset(), std::byte(0xFF));
  for (FrozenLinear& linear : linears) linear.pack(alone.W);
  for (int round = 0; round < 2; round++)
    for (const FrozenLinear& linear : linears) {
      Buffer y({M, N});
      linear.forward(y, x);
      expect_same_bits(y, want);
    }
}

TEST(FrozenLinear, KeepsTheBytesOfItsFormat) {
  const int64_t N = 128, K = 320;
  const auto bytes = [&](WeightFormat format) {
    const Frozen frozen(N, K, 1, format);
    return frozen.plan.entries()[0].bytes;
  };
  EXPECT_EQ(bytes(WeightFormat::kF32), 4 * N * K);
  EXPECT_EQ(bytes(WeightFormat::kBf16), 2 * N * K);
  EXPECT_EQ(bytes(WeightFormat::kInt8), N * K + 2 * N * K / 32);
}

TEST(FrozenLinear, CountsMultiplyAdds) {
  const Frozen frozen(37, 19, 64, WeightFormat::kBf16);
  const Buffer x = random_buffer({21, 19}, 2);
  const int64_t before = executed_multiply_adds;
  frozen.forward(x);
  EXPECT_EQ(executed_multiply_adds - before, 21 * 37 * 19);
}

TEST(FrozenLinear, WorksAfterBeingMoved) {
  Frozen made(9, 5, 3, WeightFormat::kInt8);
  const Buffer x = random_buffer({3, 5}, 2), want = made.forward(x);
  FrozenLinear moved;
  moved = std::move(made.linear);
  Buffer y({3, 9});
  moved.forward(y, x);
  expect_same_bits(y, want);
  EXPECT_EQ(moved.N(), 9);
  EXPECT_EQ(moved.K(), 5);
}

TEST(FrozenLinear, RefusesWhatWasNotPlanned) {
  Plan plan;
  FrozenLinear linear, int8;
  Buffer x({3, 4}, 0), y({3, 5}, 0), W({5, 4}, 0), wrong({4, 5}, 0);
  std::vector<int8_t> code(20);
  std::vector<uint16_t> scale(5);
  EXPECT_THROW(linear.forward(y, x), Error) << "not planned";
  EXPECT_THROW(linear.plan(plan, "w", {.N = 0, .K = 4, .max_rows = 8}), Error);
  EXPECT_THROW(linear.plan(plan, "w", {.N = 5, .K = 4, .max_rows = 0}), Error);
  linear.plan(plan, "w", {.N = 5, .K = 4, .max_rows = 2});
  int8.plan(plan, "i", {.N = 5, .K = 4, .max_rows = 2, .format = WeightFormat::kInt8});
  EXPECT_THROW(linear.pack(W), Error) << "no arena";
  const Arena arena(plan);
  EXPECT_THROW(linear.forward(y, x), Error) << "not packed";
  EXPECT_THROW(linear.pack(wrong), Error) << "transposed";
  EXPECT_THROW(linear.pack({code.data(), {5, 4}}, {scale.data(), {5, 1}}), Error) << "codes for fp32";
  EXPECT_THROW(int8.pack({code.data(), {5, 4}}, {scale.data(), {5}}), Error) << "scales have no groups";
  EXPECT_THROW(int8.pack({code.data(), {4, 5}}, {scale.data(), {5, 1}}), Error) << "codes transposed";
  int8.pack({code.data(), {5, 4}}, {scale.data(), {5, 1}});
  linear.pack(W);
  EXPECT_THROW(linear.forward(y, x), Error) << "3 rows of 2";
  const F32 x2 = x.view().slice(0, 2), y2 = y.view().slice(0, 2);
  linear.forward(y2, x2);
  EXPECT_THROW(linear.forward(x2, y2), Error) << "swapped";
  EXPECT_THROW(linear.forward(y2, x.view().slice(0, 1)), Error) << "rows differ";
}

}  // namespace
}  // namespace isobath
