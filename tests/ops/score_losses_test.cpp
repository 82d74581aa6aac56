#include "ops/score_losses.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/gradient.h"
#include "reference/score_losses.h"
#include "support/compare.h"
#include "support/rows.h"

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

TEST(BalanceLoss, MatchesTheFormulaInEveryRun) {
  const Buffer r = random_buffer({12}, 1, 2);
  const List run_begin{0, 7, 7, 8, 12};  // one is empty
  Buffer dr({12}, 10);
  double want = 0;
  std::vector<double> gradient;
  for (const auto& [begin, end] : {std::pair{0, 7}, {7, 8}, {8, 12}}) {
    const std::vector<double> run(r.values.begin() + begin, r.values.begin() + end);
    want += reference::balance_loss(run, 0.3);
    for (const double g : reference::complex_step(run, [](const auto& z) { return reference::balance_loss(z, 0.3); }))
      gradient.push_back(10 + 0.5 * g);
  }
  EXPECT_NEAR(balance_loss(add_to(dr), r, run_begin, 0.3, 0.5f), want, 1e-12);
  expect_close(dr.values, gradient, 10, 1);
  EXPECT_THROW(balance_loss(add_to(dr), r, List{0, 7}, 0.3, 1), Error);
}

TEST(SquareLoss, OfNoScoresIsZeroAndOfOtherShapesRefused) {
  Buffer none({0}), dr({3}, 0);
  EXPECT_EQ(square_loss(add_to(none), none, 1), 0);
  EXPECT_THROW(square_loss(add_to(dr), random_buffer({2}, 1), 1), Error);
}

}  // namespace
}  // namespace isobath
