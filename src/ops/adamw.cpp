#include "ops/adamw.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void adamw_step(F32 w, F32 m, F32 v, F32 g, const AdamW& option, float gradient_scale, int64_t t);
double sum_of_squares(CF32 x, View<double> partial);
}  // namespace cpu

void adamw_step(F32 w, F32 m, F32 v, F32 g, const AdamW& option, float gradient_scale, int64_t t) {
  const Work work("adamw_step", {.bytes = 2 * bytes_of(w, m, v, g)});
  require(m.numel() == w.numel() && v.numel() == w.numel() && g.numel() == w.numel(),
          "adamw_step: w, m, v, g have {}, {}, {}, {} elements, expected the same number", w.numel(), m.numel(),
          v.numel(), g.numel());
  require(t >= 1, "adamw_step: step {}, expected 1 or more; steps count from 1", t);
  if (w.device == Device::kCpu) return cpu::adamw_step(w, m, v, g, option, gradient_scale, t);
  throw_no_device("adamw_step", w.device);
}

double sum_of_squares(CF32 x, View<double> partial) {
  const Work work("sum_of_squares", {.bytes = bytes_of(x)});
  const int64_t chunks = (x.numel() + kSumChunk - 1) / kSumChunk;
  require(partial.numel() >= chunks, "sum_of_squares: partial holds {} sums, expected {} or more", partial.numel(),
          chunks);
  if (x.device == Device::kCpu) return cpu::sum_of_squares(x, partial);
  throw_no_device("sum_of_squares", x.device);
}

}  // namespace isobath
