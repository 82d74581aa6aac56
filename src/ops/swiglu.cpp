#include "ops/swiglu.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void swiglu_forward(F32 h, Stored kept, CF32 uv);
void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv);
}  // namespace cpu

void swiglu_forward(F32 h, Stored kept, CF32 uv) {
  const bool in_place = static_cast<const void*>(kept.data) == uv.data;
  const Work work("swiglu_forward", {.bytes = bytes_of(h, uv) + (in_place ? 0 : bytes_of(kept))});
  require_shape("swiglu_forward", "uv", uv, {h.shape[0], 2 * h.cols()});
  require_shape("swiglu_forward", "kept", kept, uv.shape);
  if (h.device == Device::kCpu) return cpu::swiglu_forward(h, kept, uv);
  throw_no_device("swiglu_forward", h.device);
}

void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv) {
  const Work work("swiglu_backward", {.bytes = bytes_of(duv, uv) + 2 * bytes_of(dh_to_h)});
  require_shape("swiglu_backward", "uv", uv, {dh_to_h.shape[0], 2 * dh_to_h.cols()});
  require_shape("swiglu_backward", "duv", duv, uv.shape);
  if (duv.device == Device::kCpu) return cpu::swiglu_backward(duv, dh_to_h, uv);
  throw_no_device("swiglu_backward", duv.device);
}

}  // namespace isobath
