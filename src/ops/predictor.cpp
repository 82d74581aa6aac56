#include "ops/predictor.h"

#include "base/parallel.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void predictor_forward(F32 p, F32 u, CF32 b1, CF32 w2, CF32 b2);
void predictor_backward(F32 u_to_du, Accum db1, Accum dw2, Accum db2, CF32 dp, CF32 w2, F32 partial);
}  // namespace cpu

void predictor_forward(F32 p, F32 u, CF32 b1, CF32 w2, CF32 b2) {
  const int64_t N = u.rows(), P = u.cols();
  const Work work("predictor_forward", {.multiply_adds = N * P, .bytes = 2 * bytes_of(u) + bytes_of(p, b1, w2, b2)});
  require_shape("predictor_forward", "u", u, {N, P});
  require_shape("predictor_forward", "p", p, {N});
  require_shape("predictor_forward", "b1", b1, {P});
  require_shape("predictor_forward", "w2", w2, {P});
  require_shape("predictor_forward", "b2", b2, {1});
  if (u.device != Device::kCpu) throw_no_device("predictor_forward", u.device);
  cpu::predictor_forward(p, u, b1, w2, b2);
}

void predictor_backward(F32 u_to_du, Accum db1, Accum dw2, Accum db2, CF32 dp, CF32 w2, F32 partial) {
  const int64_t N = u_to_du.rows(), P = u_to_du.cols();
  const Work work("predictor_backward",
                  {.multiply_adds = 2 * N * P, .bytes = 2 * bytes_of(u_to_du) + bytes_of(db1, dw2, db2, dp, w2)});
  require_shape("predictor_backward", "u", u_to_du, {N, P});
  require_shape("predictor_backward", "dp", dp, {N});
  require_shape("predictor_backward", "db1", db1.view, {P});
  require_shape("predictor_backward", "dw2", dw2.view, {P});
  require_shape("predictor_backward", "db2", db2.view, {1});
  require_shape("predictor_backward", "w2", w2, {P});
  require_shape("predictor_backward", "partial", partial, {kGradChunks, 2 * P + 1});
  if (u_to_du.device != Device::kCpu) throw_no_device("predictor_backward", u_to_du.device);
  cpu::predictor_backward(u_to_du, db1, dw2, db2, dp, w2, partial);
}

}  // namespace isobath
