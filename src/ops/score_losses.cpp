#include "ops/score_losses.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
double square_loss(F32 dr, CF32 r, float scale);
}  // namespace cpu

double square_loss(Accum dr, CF32 r, float scale) {
  const Work work("square_loss", {.bytes = bytes_of(dr, r)});
  require_shape("square_loss", "dr", dr.view, {r.numel()});
  if (r.device == Device::kCpu) return cpu::square_loss(dr.view, r, scale);
  throw_no_device("square_loss", r.device);
}

}  // namespace isobath
