#include "ops/widen.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void widen(F32 to, View<const Bf16> from);
}

void widen(F32 to, View<const Bf16> from) {
  const Work work("widen", {.bytes = bytes_of(to, from)});
  require_shape("widen", "to", to, from.shape);
  if (to.device == Device::kCpu) return cpu::widen(to, from);
  throw_no_device("widen", to.device);
}

}  // namespace isobath
