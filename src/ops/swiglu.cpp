#include "ops/swiglu.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void swiglu_forward(F32 h, Stored kept, CF32 uv, CF32 w);
void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv, const RowWeights& weights);
}  // namespace cpu

void swiglu_forward(F32 h, Stored kept, CF32 uv, CF32 w) {
  const bool in_place = static_cast<const void*>(kept.data) == uv.data;
  const Work work("swiglu_forward", {.bytes = bytes_of(h, uv, w) + (in_place ? 0 : bytes_of(kept))});
  require_shape("swiglu_forward", "uv", uv, {h.shape[0], 2 * h.cols()});
  require_shape("swiglu_forward", "kept", kept, uv.shape);
  if (!w.empty()) require_shape("swiglu_forward", "w", w, {h.shape[0]});
  if (h.device == Device::kCpu) return cpu::swiglu_forward(h, kept, uv, w);
  throw_no_device("swiglu_forward", h.device);
}

void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv, const RowWeights& weights) {
  const Work work("swiglu_backward", {.bytes = bytes_of(duv, uv, weights.w, weights.dw) + 2 * bytes_of(dh_to_h)});
  require_shape("swiglu_backward", "uv", uv, {dh_to_h.shape[0], 2 * dh_to_h.cols()});
  require_shape("swiglu_backward", "duv", duv, uv.shape);
  if (!weights.w.empty()) {
    require_shape("swiglu_backward", "w", weights.w, {duv.shape[0]});
    require_shape("swiglu_backward", "dw", weights.dw, {duv.shape[0]});
  }
  if (duv.device == Device::kCpu) return cpu::swiglu_backward(duv, dh_to_h, uv, weights);
  throw_no_device("swiglu_backward", duv.device);
}

}  // namespace isobath
