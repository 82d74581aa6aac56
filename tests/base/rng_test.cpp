#include "base/rng.h"

#include <gtest/gtest.h>

namespace isobath {
namespace {

// Known answers of the generator's authors: Random123 kat_vectors, philox4x32 with 10 rounds.
TEST(Rng, MatchesPublishedVectorForZero) {
  const Rng rng(uint32_t(Stream::kInit) * 0x9E3779B9u, Stream::kInit);  // cancels to the zero key
  const auto w = rng.words(0, 0);
  EXPECT_EQ(w[0], 0x6627e8d5u);
  EXPECT_EQ(w[1], 0xe169c58du);
  EXPECT_EQ(w[2], 0xbc57ac4cu);
  EXPECT_EQ(w[3], 0x9b00dbd8u);
}

TEST(Rng, NormalHasMeanZeroAndVarianceOne) {
  const Rng rng(7, Stream::kInit);
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (int i = 0; i < kCount; i++) {
    const double x = rng.normal(uint64_t(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0, 0.01);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
}

TEST(Rng, StreamsSeedsAndSubstreamsDiffer) {
  EXPECT_NE(Rng(1, Stream::kInit).words(0, 0), Rng(1, Stream::kData).words(0, 0));
  EXPECT_NE(Rng(1, Stream::kInit).words(0, 0), Rng(2, Stream::kInit).words(0, 0));
  EXPECT_NE(Rng(1, Stream::kInit, 0).words(0, 0), Rng(1, Stream::kInit, 1).words(0, 0));
}

}  // namespace
}  // namespace isobath
