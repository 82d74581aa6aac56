#include "lab/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace isobath {
namespace {

std::vector<double> ranks(std::span<const double> x) {
  std::vector<size_t> order(x.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] < x[b]; });
  std::vector<double> rank(x.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i + 1;
    while (end < order.size() && x[order[end]] == x[order[i]]) end++;
    for (size_t j = i; j < end; j++) rank[order[j]] = double(i + end - 1) / 2;
    i = end;
  }
  return rank;
}

// Of a sample, about a point near its middle.
struct Moments {
  double n = 0, x = 0, y = 0, xx = 0, yy = 0, xy = 0;
  void add(double dx, double dy) { n++, x += dx, y += dy, xx += dx * dx, yy += dy * dy, xy += dx * dy; }
  Moments& operator+=(const Moments& o) {
    n += o.n, x += o.x, y += o.y, xx += o.xx, yy += o.yy, xy += o.xy;
    return *this;
  }
  double correlation() const {
    const double vx = xx - x * x / n, vy = yy - y * y / n;
    return vx > 0 && vy > 0 ? (xy - x * y / n) / std::sqrt(vx * vy) : std::numeric_limits<double>::quiet_NaN();
  }
};

// By blocks of neighbours; the last one is shorter.
std::vector<Moments> moments_of_ranks(std::span<const double> x, std::span<const double> y, int64_t block) {
  require(x.size() == y.size(), "spearman: lists of {} and {} entries, expected the same number", x.size(), y.size());
  const std::vector<double> rx = ranks(x), ry = ranks(y);
  const double mean = (double(x.size()) - 1) / 2;
  std::vector<Moments> blocks((x.size() + size_t(block) - 1) / size_t(block));
  for (size_t i = 0; i < x.size(); i++) blocks[i / size_t(block)].add(rx[i] - mean, ry[i] - mean);
  return blocks;
}

}  // namespace

double spearman(std::span<const double> x, std::span<const double> y) { return rank_correlation(x, y, 64).value; }

RankCorrelation rank_correlation(std::span<const double> x, std::span<const double> y, int64_t block) {
  constexpr int64_t kDraws = 1000, kFewest = 8;
  const std::vector<Moments> blocks = moments_of_ranks(x, y, block);
  Moments whole;
  for (const Moments& m : blocks) whole += m;
  RankCorrelation result{.value = whole.correlation()};
  const int64_t count = int64_t(blocks.size());
  if (count < kFewest || !std::isfinite(result.value)) return result;
  std::vector<double> draws;
  const Rng rng(1, Stream::kBench);
  for (int64_t d = 0; d < kDraws; d++) {
    Moments sample;
    for (int64_t b = 0; b < count; b++) sample += blocks[size_t(rng.below(count, uint64_t(d * count + b)))];
    if (const double value = sample.correlation(); std::isfinite(value)) draws.push_back(value);
  }
  if (!draws.empty()) result.interval = Interval{quantile(draws, 0.025), quantile(draws, 0.975)};
  return result;
}

double quantile(std::vector<double> values, double p) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  std::sort(values.begin(), values.end());
  const double at = p * double(values.size() - 1);
  const size_t below = size_t(at), above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - double(below)) * (values[above] - values[below]);
}

size_t Histogram::bin_of(double value) const {
  const double bin = std::floor((value - low) / width);
  return size_t(std::clamp(bin, 0.0, double(count.size()) - 1));
}

Histogram histogram(std::span<const float> values, int64_t bins, double edge) {
  require(bins >= 1, "histogram: {} bins, expected 1 or more", bins);
  Histogram h;
  h.count.assign(size_t(bins), 0);
  if (values.empty()) return h;
  const std::vector<double> all(values.begin(), values.end());
  const double low = std::min(quantile(all, 0.01), edge), high = std::max(quantile(all, 0.99), edge);
  // One bin is given up so that the grid can be moved until `edge` lies on it.
  h.width = high > low ? (high - low) / double(std::max<int64_t>(1, bins - 1)) : 1;
  h.low = edge - h.width * std::ceil((edge - low) / h.width);
  for (const float value : values) h.count[h.bin_of(double(value))]++;
  return h;
}

}  // namespace isobath
