#include "ops/cross_entropy.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void cross_entropy(F32 z, F32 loss, F32 entropy, CI32 target, float scale);
}  // namespace cpu

void cross_entropy(F32 z, F32 loss, F32 entropy, CI32 target, float scale) {
  const Work work("cross_entropy", {.bytes = (scale == 0 ? 1 : 2) * bytes_of(z) + bytes_of(loss, entropy, target)});
  const int64_t N = z.rows(), V = z.cols();
  require(z.shape.rank() == 2 && V > 0, "cross_entropy: z has shape {}, expected (N,V)", z.shape);
  require_shape("cross_entropy", "loss", loss, {N});
  require_shape("cross_entropy", "entropy", entropy, {N});
  require_shape("cross_entropy", "target", target, {N});
  for (int64_t n = 0; n < N; n++)
    require(target[n] >= -1 && target[n] < V,
            "cross_entropy: target[{}] is {}, expected 0 to {}, or -1 where nothing is scored", n, target[n], V - 1);
  if (z.device == Device::kCpu) return cpu::cross_entropy(z, loss, entropy, target, scale);
  throw_no_device("cross_entropy", z.device);
}

}  // namespace isobath
