// bfloat16 by the definition: the nearest of the numbers with 8 significant bits, ties to the even one.
#include "tensor/stored.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace isobath {
namespace {

float f32(uint32_t bits) { return std::bit_cast<float>(bits); }
float rounded(float value) { return to_f32(to_stored<Bf16>(value)); }

TEST(Bf16, WideningIsExactAndRoundsToItself) {
  for (uint32_t half = 0; half < 0x10000; half++) {
    const float value = to_f32(Bf16{uint16_t(half)});
    EXPECT_EQ(std::bit_cast<uint32_t>(value), half << 16);
    if (std::isnan(value)) continue;
    ASSERT_EQ(to_stored<Bf16>(value).bits, half);
  }
}

// Between each number and the next one away from zero: below, at and above the middle.
TEST(Bf16, RoundsToNearestAndTiesToEven) {
  for (uint32_t half = 0; half < 0x7f80; half++)
    for (const uint32_t sign : {0u, 0x8000u}) {
      const uint32_t at = (sign | half) << 16, next = half + 1;
      const auto expect = [&](uint32_t below, uint32_t magnitude) {
        ASSERT_EQ(to_stored<Bf16>(f32(at + below)).bits, sign | magnitude) << half << " + " << below;
      };
      expect(1, half);
      expect(0x7fff, half);
      expect(0x8000, half % 2 == 0 ? half : next);
      expect(0x8001, next);
      expect(0xffff, next);
    }
}

TEST(Bf16, InfinityOverflowAndNaN) {
  const float infinity = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  EXPECT_EQ(rounded(infinity), infinity);
  EXPECT_EQ(rounded(-infinity), -infinity);
  EXPECT_EQ(rounded(most), infinity) << "nearer to 2^128 than to the largest number below it";
  EXPECT_EQ(rounded(f32(0x7f7f0000)), f32(0x7f7f0000));
  for (const uint32_t nan : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu})
    EXPECT_TRUE(std::isnan(rounded(f32(nan)))) << nan;
  EXPECT_TRUE(std::signbit(rounded(-0.0f)));
}

TEST(Bf16, MovesANumberByAtMostTwoToTheMinusEight) {
  const Rng rng(1, Stream::kBench);
  double largest = 0;
  for (uint64_t i = 0; i < 100000; i++) {
    const float value = rng.normal(i) * std::exp2(float(i % 60) - 30);
    largest = std::max(largest, std::abs(double(rounded(value)) / double(value) - 1));
  }
  EXPECT_LE(largest, 1.0 / 256);
  EXPECT_GT(largest, 0.9 / 256);
}

TEST(StoredView, IsEitherFormatAndSlicesByRows) {
  std::vector<float> wide(12);
  std::vector<Bf16> narrow(12);
  const Stored f(F32{wide.data(), {4, 3}}), b(View<Bf16>{narrow.data(), {4, 3}});
  EXPECT_EQ(f.storage, Storage::kF32);
  EXPECT_EQ(b.storage, Storage::kBf16);
  EXPECT_EQ(f.slice(1, 2).as<float>().data, wide.data() + 3);
  EXPECT_EQ(b.slice(1, 2).as<Bf16>().data, narrow.data() + 3);
  EXPECT_EQ(b.slice(1, 2).shape, Shape({2, 3}));
  const CStored constant = b;
  EXPECT_EQ(with_format(constant, [](auto view) { return sizeof(*view.data); }), 2u);
  EXPECT_EQ(with_format(f, [](auto view) { return sizeof(*view.data); }), 4u);
  EXPECT_THROW(f.as<Bf16>(), Error);
  EXPECT_THROW(constant.as<float>(), Error);
  EXPECT_TRUE(Stored().empty());
}

}  // namespace
}  // namespace isobath
