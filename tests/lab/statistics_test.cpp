#include "lab/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

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
