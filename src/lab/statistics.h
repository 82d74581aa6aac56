// Small statistics of what routers do.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace isobath {

struct Interval {
  double low = 0, high = 0;
  bool holds(double value) const { return low <= value && value <= high; }
};

// Spearman's rank correlation, ties at their mean rank. NaN where either list is constant or has under two entries.
// Throws Error if the lists differ in length.
double spearman(std::span<const double> x, std::span<const double> y);

// The same with an interval of 95%: the middle of 1,000 resamples of blocks of `block` neighbours, since neighbours in
// a text are alike (Kuensch 1989); a resample keeps the ranks of the whole. None for fewer than 8 blocks.
struct RankCorrelation {
  double value = 0;
  std::optional<Interval> interval = {};
};
RankCorrelation rank_correlation(std::span<const double> x, std::span<const double> y, int64_t block);

// The value that the share p in [0,1] of the list lies under, linear between neighbours. NaN for an empty list.
double quantile(std::vector<double> values, double p);

// Counts in bins of equal width. The range is that of the values, cut at their 1% tails so that outliers do not
// flatten the rest (values beyond are counted in the outermost bins), and widened so that `edge` is a bin's edge.
struct Histogram {
  double low = 0, width = 1;
  std::vector<int64_t> count;
  double edge_of(size_t bin) const { return low + width * double(bin); }
  size_t bin_of(double value) const;
};
Histogram histogram(std::span<const float> values, int64_t bins, double edge = 0);

}  // namespace isobath
