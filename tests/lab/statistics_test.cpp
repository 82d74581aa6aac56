#include "lab/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <random>

#include "base/error.h"

namespace isobath {
namespace {

TEST(Spearman, RisingFallingAndConstant) {
  const std::vector<double> x{1, 2, 3, 4}, steep{1, 10, 100, 1000}, down{9, 7, 5, 0}, flat{2, 2, 2, 2};
  EXPECT_DOUBLE_EQ(spearman(x, steep), 1);
  EXPECT_DOUBLE_EQ(spearman(x, down), -1);
  EXPECT_TRUE(std::isnan(spearman(x, flat)));
  EXPECT_TRUE(std::isnan(spearman(std::vector<double>{1}, std::vector<double>{1})));
  EXPECT_THROW(spearman(x, std::vector<double>{1, 2}), Error);
}

// Ranks of x: 0, 1.5, 1.5, 3; of y: 0, 2, 1, 3. Covariance 4.5, variances 4.5 and 5: 4.5 / sqrt(22.5).
TEST(Spearman, TiesHaveTheirMeanRank) {
  const std::vector<double> x{1, 2, 2, 3}, y{1, 3, 2, 4};
  EXPECT_NEAR(spearman(x, y), 4.5 / std::sqrt(22.5), 1e-15);
}

TEST(RankCorrelation, ItsIntervalHoldsWhatIsTrueAsOftenAsItSays) {
  // Pairs whose shared part makes a correlation of 0.5; of normal numbers Spearman's is 6/pi asin(0.25) = 0.4826.
  constexpr int64_t kLists = 200, kLength = 2000;
  int64_t holds = 0;
  for (int64_t list = 0; list < kLists; list++) {
    std::mt19937_64 random{uint64_t(list)};
    std::normal_distribution<double> normal;
    std::vector<double> x, y;
    for (int64_t i = 0; i < kLength; i++) {
      const double shared = normal(random);
      x.push_back(shared + normal(random)), y.push_back(shared + normal(random));
    }
    const RankCorrelation c = rank_correlation(x, y, 20);
    ASSERT_TRUE(c.interval);
    EXPECT_TRUE(c.interval->holds(c.value));
    EXPECT_DOUBLE_EQ(c.value, spearman(x, y));
    holds += c.interval->holds(6 / std::numbers::pi * std::asin(0.25));
  }
  EXPECT_NEAR(double(holds) / kLists, 0.95, 0.045);  // three times sqrt(0.95 0.05 / 200)
}

// Each number stands twenty times in a row: there is a twentieth of the information.
TEST(RankCorrelation, NeighboursThatAreAlikeWidenIt) {
  std::mt19937_64 random{1};
  std::normal_distribution<double> normal;
  std::vector<double> x, y;
  for (int64_t i = 0; i < 100; i++) {
    const double a = normal(random), b = a + normal(random);
    x.insert(x.end(), 20, a), y.insert(y.end(), 20, b);
  }
  const Interval alone = *rank_correlation(x, y, 1).interval, blocks = *rank_correlation(x, y, 20).interval;
  EXPECT_GT(blocks.high - blocks.low, 3 * (alone.high - alone.low));
}

TEST(RankCorrelation, HasNoIntervalOfAHandfulOrOfAConstant) {
  const std::vector<double> x{1, 2, 3, 4, 5, 6, 7, 8}, flat(8, 1.0);
  EXPECT_TRUE(rank_correlation(x, x, 1).interval);
  EXPECT_FALSE(rank_correlation(x, x, 2).interval);
  EXPECT_FALSE(rank_correlation(x, flat, 1).interval);
}

TEST(Quantile, LiesBetweenNeighbours) {
  EXPECT_DOUBLE_EQ(quantile({3, 1, 2}, 0.5), 2);
  EXPECT_DOUBLE_EQ(quantile({0, 1}, 0.25), 0.25);
  EXPECT_DOUBLE_EQ(quantile({5}, 0.9), 5);
  EXPECT_TRUE(std::isnan(quantile({}, 0.5)));
}

TEST(Histogram, CountsEveryValueAndDividesAtTheEdge) {
  const std::vector<float> values{-1.5f, -0.25f, -1e-6f, 0.0f, 0.25f, 2.0f};
  const Histogram h = histogram(values, 8);
  EXPECT_EQ(std::accumulate(h.count.begin(), h.count.end(), int64_t{0}), 6);
  const double bin = -h.low / h.width;
  EXPECT_NEAR(bin, std::round(bin), 1e-9) << "0 lies on the edge of a bin";
  int64_t below = 0;
  for (size_t i = 0; i < size_t(std::llround(bin)); i++) below += h.count[i];
  EXPECT_EQ(below, 3);
}

TEST(Histogram, OneValueAndNone) {
  EXPECT_EQ(histogram(std::vector<float>{0.0f}, 4).count[0], 1);
  const Histogram none = histogram({}, 3);
  EXPECT_EQ(none.count, std::vector<int64_t>(3, 0));
}

TEST(Histogram, AnOutlierIsCountedAtTheEnd) {
  std::vector<float> values(5000, 1.0f);
  for (size_t i = 0; i < values.size(); i++) values[i] = float(i % 100) / 100;
  values.push_back(1e6f);
  const Histogram h = histogram(values, 20);
  EXPECT_LT(h.edge_of(20), 2);
  EXPECT_GT(h.count.back(), 0);
}

}  // namespace
}  // namespace isobath
