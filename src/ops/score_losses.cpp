#include "ops/score_losses.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
double square_loss(F32 dr, CF32 r, float scale);
double balance_loss(F32 dr, CF32 r, CI32 run_begin, double capacity, float scale);
}  // namespace cpu

double square_loss(Accum dr, CF32 r, float scale) {
  const Work work("square_loss", {.bytes = bytes_of(dr, r)});
  require_shape("square_loss", "dr", dr.view, {r.numel()});
  if (r.device == Device::kCpu) return cpu::square_loss(dr.view, r, scale);
  throw_no_device("square_loss", r.device);
}

double balance_loss(Accum dr, CF32 r, CI32 run_begin, double capacity, float scale) {
  const Work work("balance_loss", {.bytes = bytes_of(dr, r, run_begin)});
  const int64_t runs = run_begin.numel() - 1;
  require_shape("balance_loss", "dr", dr.view, {r.numel()});
  require(runs >= 0 && run_begin[0] == 0 && run_begin[runs] == r.numel(),
          "balance_loss: run_begin must lead from row 0 to row {}", r.numel());
  if (r.device == Device::kCpu) return cpu::balance_loss(dr.view, r, run_begin, capacity, scale);
  throw_no_device("balance_loss", r.device);
}

}  // namespace isobath
