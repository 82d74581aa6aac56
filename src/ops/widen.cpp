#include "ops/widen.h"

#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void widen(F32 to, CStored from);
}

void widen(F32 to, CStored from) {
  require_shape("widen", "to", to, from.shape);
  if (to.device == Device::kCpu) return cpu::widen(to, from);
  throw_no_device("widen", to.device);
}

}  // namespace isobath
