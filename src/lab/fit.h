// The best size for a budget, and how it grows with the budget.
//
// Hoffmann et al. 2022, arXiv:2203.15556, approach 2: at one budget C the loss of models of N parameters is close to a
// parabola in log N; its lowest point is the best size. Over budgets, log N_best = a log C + b.
//   loss = p0 + p1 (x - m) + p2 (x - m)^2,  x = log N, m = mean x,  by least squares;  x_best = m - p1 / (2 p2)
// Intervals are bootstrap-t (Efron & Tibshirani 1993, ch. 12): residuals, enlarged to their degrees of freedom, are
// drawn with replacement onto the fitted curve; every draw is fitted, and (x* - x_best) / se* says how far x_best
// may lie from the truth. se by the delta method. Draws are a function of the points alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/statistics.h"

namespace isobath {

struct FitOptions {
  double level = 0.95;  // of intervals
  int64_t draws = 1000;
};

struct IsoFlopPoint {
  double size = 0;  // parameters
  double loss = 0;
};

struct IsoFlopFit {
  double mean_x = 0, p0 = 0, p1 = 0, p2 = 0;  // of log size
  double best_size = 0, best_loss = 0;
  std::optional<Interval> interval;  // of best_size; none for as many points as coefficients
  double se = 0;                     // of log best_size
  bool inside = false;               // whether best_size lies between the smallest and the largest point
  double at(double size) const;
};

// None for fewer than three sizes, and where no best size is in sight: the points do not turn upwards (p2 <= 0), or
// would only a hundredfold outside of them.
std::optional<IsoFlopFit> fit_isoflop(std::span<const IsoFlopPoint> points, const FitOptions& options = {});

struct BudgetPoints {
  double flops = 0;
  std::vector<IsoFlopPoint> points;
};

struct ScalingFit {
  double exponent = 0;               // a
  double coefficient = 0;            // exp(b): best size = coefficient * flops^exponent
  std::optional<Interval> interval;  // of the exponent
  std::vector<double> flops;         // of the budgets that have a best size
  std::vector<IsoFlopFit> budget;    // theirs
};

// Of the budgets whose best size lies among their points. None for fewer than two of them.
std::optional<ScalingFit> fit_scaling(std::span<const BudgetPoints> budgets, const FitOptions& options = {});

}  // namespace isobath
