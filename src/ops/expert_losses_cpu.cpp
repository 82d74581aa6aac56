#include <algorithm>
#include <array>
#include <cmath>

#include "ops/expert_choice.h"
#include "ops/expert_losses.h"

namespace isobath::cpu {
namespace {

// O sum_o f_o P_o of one run, and its gradient times scale.
double balance_of_run(F32 dp, CF32 logit, CF32 p, int64_t begin, int64_t end, double scale) {
  const int64_t O = p.cols();
  const double T = double(end - begin);
  std::array<double, size_t(kMostExpertOutputs)> first{}, mean{};
  for (int64_t s = begin; s < end; s++) {
    const float* row = logit.row(s);
    first[size_t(std::max_element(row, row + O) - row)] += 1 / T;
    for (int64_t o = 0; o < O; o++) mean[size_t(o)] += double(p.row(s)[o]) / T;
  }
  double sum = 0;
  for (size_t o = 0; o < size_t(O); o++) sum += double(O) * first[o] * mean[o];
  for (int64_t s = begin; s < end; s++)
    for (int64_t o = 0; o < O; o++) dp.row(s)[o] += float(scale * double(O) * first[size_t(o)] / T);
  return sum;
}

}  // namespace

double expert_balance_loss(F32 dp, CF32 logit, CF32 p, CI32 run_begin, float scale) {
  double sum = 0;
  for (int64_t r = 0; r + 1 < run_begin.numel(); r++)
    if (run_begin[r] < run_begin[r + 1])
      sum += balance_of_run(dp, logit, p, run_begin[r], run_begin[r + 1], double(scale));
  return sum;
}

double expert_imitation_loss(F32 dlogit, Agreement& agreement, CF32 logit, CI32 place, CI32 run_begin, float scale) {
  const int64_t E = logit.cols();
  double sum = 0;
  agreement = {};
  for (int64_t r = 0; r + 1 < run_begin.numel(); r++) {
    const int64_t begin = run_begin[r] * E, end = run_begin[r + 1] * E;
    const double over = 1 / double(std::max<int64_t>(1, end - begin));
    for (int64_t i = begin; i < end; i++) {
      // softplus and sigmoid by exp(-|x|), which cannot overflow
      const double x = double(logit[i]), e = std::exp(-std::abs(x)), target = place[i] >= 0;
      sum += over * (std::max(x, 0.0) + std::log1p(e) - target * x);
      dlogit[i] += float(double(scale) * over * ((x >= 0 ? 1 : e) / (1 + e) - target));
      agreement += {.rows = 1, .chosen = place[i] >= 0, .said = x > 0, .both = place[i] >= 0 && x > 0};
    }
  }
  return sum;
}

}  // namespace isobath::cpu
