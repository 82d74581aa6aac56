#include "lab/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/rng.h"
#include "lab/statistics.h"

namespace isobath {
namespace {

// Least squares on 1, z, z^2: the inverse of the normal matrix is of x alone, so that draws share it.
class Parabola {
 public:
  explicit Parabola(std::vector<double> x) : z_(std::move(x)) {
    for (const double v : z_) mean_ += v / double(z_.size());
    for (double& v : z_) v -= mean_;
    std::array<double, 5> s{};
    for (const double z : z_)
      for (size_t k = 0; k < 5; k++) s[k] += std::pow(z, double(k));
    const double a = s[0], b = s[1], c = s[2], d = s[3], e = s[4];
    const double det = a * (c * e - d * d) - b * (b * e - c * d) + c * (b * d - c * c);
    inverse_ = {{{(c * e - d * d) / det, (c * d - b * e) / det, (b * d - c * c) / det},
                 {(c * d - b * e) / det, (a * e - c * c) / det, (b * c - a * d) / det},
                 {(b * d - c * c) / det, (b * c - a * d) / det, (a * c - b * b) / det}}};
  }
  struct Fit {
    std::array<double, 3> p{};
    double variance = 0;  // of a residual, by its degrees of freedom
    double x = 0, se = 0;
    bool turns = false;
  };
  Fit fit(std::span<const double> y) const {
    std::array<double, 3> right{};
    for (size_t i = 0; i < y.size(); i++) {
      right[0] += y[i];
      right[1] += y[i] * z_[i];
      right[2] += y[i] * z_[i] * z_[i];
    }
    Fit f;
    for (size_t r = 0; r < 3; r++)
      for (size_t k = 0; k < 3; k++) f.p[r] += inverse_[r][k] * right[k];
    for (size_t i = 0; i < y.size(); i++) f.variance += (y[i] - at(f, i)) * (y[i] - at(f, i));
    f.variance = y.size() > 3 ? f.variance / double(y.size() - 3) : 0;
    f.turns = f.p[2] > 0;
    if (!f.turns) return f;
    f.x = mean_ - f.p[1] / (2 * f.p[2]);
    const double d1 = -1 / (2 * f.p[2]), d2 = f.p[1] / (2 * f.p[2] * f.p[2]);
    f.se = std::sqrt(f.variance * (d1 * d1 * inverse_[1][1] + 2 * d1 * d2 * inverse_[1][2] + d2 * d2 * inverse_[2][2]));
    return f;
  }
  double at(const Fit& f, size_t i) const { return f.p[0] + z_[i] * (f.p[1] + z_[i] * f.p[2]); }
  double mean() const { return mean_; }

 private:
  std::vector<double> z_;
  double mean_ = 0;
  std::array<std::array<double, 3>, 3> inverse_{};
};

struct Fitted {
  IsoFlopFit result;
  std::vector<Parabola::Fit> draws;  // empty without degrees of freedom
};

// Residuals drawn onto the curve. Draws whose parabola does not turn upwards have no best size and are left out by
// who asks for one.
std::vector<Parabola::Fit> draw_fits(const Parabola& parabola, const Parabola::Fit& fit, std::span<const double> y,
                                     int64_t draws, uint32_t stream) {
  const size_t n = y.size();
  std::vector<double> residual(n);
  const double enlarge = std::sqrt(double(n) / double(n - 3));
  for (size_t i = 0; i < n; i++) residual[i] = enlarge * (y[i] - parabola.at(fit, i));
  const Rng rng(1, Stream::kBench, stream);
  std::vector<Parabola::Fit> fits;
  std::vector<double> drawn(n);
  for (int64_t draw = 0; draw < draws; draw++) {
    for (size_t i = 0; i < n; i++)
      drawn[i] = parabola.at(fit, i) + residual[size_t(rng.below(int64_t(n), uint64_t(draw), uint64_t(i)))];
    fits.push_back(parabola.fit(drawn));
  }
  return fits;
}

// From the quantiles of t = (estimate* - estimate) / se*.
std::optional<Interval> interval_of(double estimate, double se, std::vector<double> t, double level) {
  if (t.empty() || !(se > 0)) return {};
  const double tail = (1 - level) / 2;
  return Interval{estimate - se * quantile(t, 1 - tail), estimate - se * quantile(t, tail)};
}

std::optional<Fitted> fit_points(std::span<const IsoFlopPoint> points, const FitOptions& options, uint32_t stream) {
  std::set<double> sizes;
  std::vector<double> x, y;
  for (const IsoFlopPoint& point : points) {
    require(point.size > 0 && std::isfinite(point.loss), "isoFLOP fit: a point of size {} and loss {}", point.size,
            point.loss);
    sizes.insert(point.size);
    x.push_back(std::log(point.size));
    y.push_back(point.loss);
  }
  if (sizes.size() < 3) return {};
  const Parabola parabola(x);
  const Parabola::Fit fit = parabola.fit(y);
  constexpr double kInSight = 4.6;  // log 100
  const auto [least, most] = std::minmax_element(x.begin(), x.end());
  if (!fit.turns || fit.x < *least - kInSight || fit.x > *most + kInSight) return {};
  Fitted fitted;
  IsoFlopFit& r = fitted.result;
  r.mean_x = parabola.mean();
  std::tie(r.p0, r.p1, r.p2) = std::tuple(fit.p[0], fit.p[1], fit.p[2]);
  r.best_size = std::exp(fit.x);
  r.best_loss = r.at(r.best_size);
  r.se = fit.se;
  r.inside = r.best_size >= *sizes.begin() && r.best_size <= *sizes.rbegin();
  if (points.size() == 3) return fitted;
  fitted.draws = draw_fits(parabola, fit, y, options.draws, stream);
  std::vector<double> t;
  for (const Parabola::Fit& draw : fitted.draws)
    if (draw.turns && draw.se > 0) t.push_back((draw.x - fit.x) / draw.se);
  if (const auto log_interval = interval_of(fit.x, fit.se, t, options.level))
    r.interval = Interval{std::exp(log_interval->low), std::exp(log_interval->high)};
  return fitted;
}

struct Line {
  double slope = 0, start = 0, se = 0;
};
// Through (log C, x), whose errors are independent.
Line line_through(const std::vector<double>& c, const std::vector<double>& x, const std::vector<double>& se) {
  double mean_c = 0, mean_x = 0, spread = 0;
  for (size_t i = 0; i < c.size(); i++) {
    mean_c += c[i] / double(c.size());
    mean_x += x[i] / double(c.size());
  }
  for (const double v : c) spread += (v - mean_c) * (v - mean_c);
  Line line;
  double variance = 0;
  for (size_t i = 0; i < c.size(); i++) {
    const double weight = (c[i] - mean_c) / spread;
    line.slope += weight * x[i];
    variance += weight * weight * se[i] * se[i];
  }
  line.start = mean_x - line.slope * mean_c;
  line.se = std::sqrt(variance);
  return line;
}

}  // namespace

double IsoFlopFit::at(double size) const {
  const double z = std::log(size) - mean_x;
  return p0 + z * (p1 + z * p2);
}

std::optional<IsoFlopFit> fit_isoflop(std::span<const IsoFlopPoint> points, const FitOptions& options) {
  const auto fitted = fit_points(points, options, 0);
  return fitted ? std::optional(fitted->result) : std::nullopt;
}

std::optional<ScalingFit> fit_scaling(std::span<const BudgetPoints> budgets, const FitOptions& options) {
  std::vector<Fitted> fits;
  ScalingFit result;
  std::vector<double> c, x, se;
  for (size_t i = 0; i < budgets.size(); i++) {
    auto fitted = fit_points(budgets[i].points, options, uint32_t(i));
    if (!fitted || !fitted->result.inside) continue;
    c.push_back(std::log(budgets[i].flops));
    x.push_back(std::log(fitted->result.best_size));
    se.push_back(fitted->result.se);
    result.flops.push_back(budgets[i].flops);
    result.budget.push_back(fitted->result);
    fits.push_back(std::move(*fitted));
  }
  if (c.size() < 2) return {};
  const Line line = line_through(c, x, se);
  result.exponent = line.slope;
  result.coefficient = std::exp(line.start);
  std::vector<double> t;
  for (int64_t draw = 0; draw < options.draws; draw++) {
    bool whole = true;
    for (size_t i = 0; i < fits.size() && whole; i++) {
      whole = size_t(draw) < fits[i].draws.size() && fits[i].draws[size_t(draw)].turns;
      if (!whole) break;
      x[i] = fits[i].draws[size_t(draw)].x;
      se[i] = fits[i].draws[size_t(draw)].se;
    }
    if (!whole) continue;
    const Line drawn = line_through(c, x, se);
    if (drawn.se > 0) t.push_back((drawn.slope - line.slope) / drawn.se);
  }
  result.interval = interval_of(line.slope, line.se, t, options.level);
  return result;
}

}  // namespace isobath
