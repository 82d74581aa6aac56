#include "ops/bce.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
double bce_with_logits(Accum dr, Agreement& agreement, CF32 r, CI32 index, float scale);
}  // namespace cpu

double bce_with_logits(Accum dr, Agreement& agreement, CF32 r, CI32 index, float scale) {
  const Work work("bce_with_logits", {.bytes = bytes_of(dr, r, index)});
  require(r.shape.rank() == 1, "bce_with_logits: r has shape {}, expected (N)", r.shape);
  if (!dr.view.empty()) require_shape("bce_with_logits", "dr", dr.view, r.shape);
  if (index.empty()) index = {nullptr, {0}};
  if (index.numel() > 0) require_ascending_rows("bce_with_logits", index, index.numel(), r.numel());
  if (r.device == Device::kCpu) return cpu::bce_with_logits(dr, agreement, r, index, scale);
  throw_no_device("bce_with_logits", r.device);
}

}  // namespace isobath
