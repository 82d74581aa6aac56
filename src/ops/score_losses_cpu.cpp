#include <cmath>

#include "ops/score_losses.h"

namespace isobath::cpu {

double square_loss(F32 dr, CF32 r, float scale) {
  double sum = 0;
  for (int64_t n = 0; n < r.numel(); n++) {
    sum += double(r[n]) * double(r[n]);
    dr[n] += float(2.0 * double(scale) * double(r[n]));
  }
  return sum;
}

namespace {
double sigmoid(double r) { return 1 / (1 + std::exp(-r)); }
}  // namespace

double balance_loss(F32 dr, CF32 r, CI32 run_begin, double capacity, float scale) {
  double sum = 0;
  for (int64_t s = 0; s + 1 < run_begin.numel(); s++) {
    const int64_t begin = run_begin[s], end = run_begin[s + 1];
    if (begin == end) continue;
    double mean = 0;
    for (int64_t n = begin; n < end; n++) mean += sigmoid(double(r[n]));
    const double T = double(end - begin), distance = mean / T - capacity;
    sum += distance * distance;
    for (int64_t n = begin; n < end; n++)
      dr[n] += float(double(scale) * 2 * distance / T * sigmoid(double(r[n])) * sigmoid(-double(r[n])));
  }
  return sum;
}

}  // namespace isobath::cpu
