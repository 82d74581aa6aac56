#include "ops/score_losses.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/gradient.h"
#include "reference/score_losses.h"
#include "support/compare.h"

namespace isobath {
namespace {
using namespace testing;

TEST(SquareLoss, MatchesTheFormula) {
  for (const int64_t N : {1, 7, 130}) {
    const Buffer r = random_buffer({N}, 1, 2);
    Buffer dr({N}, 10);
    EXPECT_NEAR(square_loss(add_to(dr), r, 0.3f), reference::square_loss(to_double(r)), 1e-9 * double(N));
    auto want = reference::complex_step(to_double(r), [](const auto& z) { return reference::square_loss(z); });
    for (double& w : want) w = 10 + double(0.3f) * w;
    expect_close(dr.values, want, 10, 1);
  }
}

TEST(SquareLoss, OfNoScoresIsZeroAndOfOtherShapesRefused) {
  Buffer none({0}), dr({3}, 0);
  EXPECT_EQ(square_loss(add_to(none), none, 1), 0);
  EXPECT_THROW(square_loss(add_to(dr), random_buffer({2}, 1), 1), Error);
}

}  // namespace
}  // namespace isobath
