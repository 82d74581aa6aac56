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

}  // namespace isobath::cpu
