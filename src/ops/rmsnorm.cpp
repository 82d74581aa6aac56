#include "ops/rmsnorm.h"

#include "base/parallel.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void rmsnorm_forward(F32 y, F32 rstd, F32 saved, const RmsNormIn& in, CF32 weight, float eps);
void rmsnorm_apply(F32 y, const RmsNormIn& in, CF32 weight, CF32 rstd);
void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, const RmsNormIn& in, CF32 weight, CF32 rstd, F32 partial);
}  // namespace cpu

namespace {
// Shapes that forward and backward share; `out` is y or dz.
void check(const char* op, CF32 out, const RmsNormIn& in, CF32 weight, CF32 rstd) {
  const int64_t S = rstd.numel(), N = in.x.rows(), D = weight.numel();
  require(out.shape == Shape{S, D}, "{}: the output has shape {}, expected {}", op, out.shape, Shape{S, D});
  require_shape(op, "x", in.x, {N, D});
  if (!in.add.empty()) require_shape(op, "add", in.add, {S, D});
  require_rows(op, in.index, S, N);
}
}  // namespace

void rmsnorm_forward(F32 y, F32 rstd, F32 saved, const RmsNormIn& in, CF32 weight, float eps) {
  const Work work("rmsnorm_forward", {.bytes = 2 * bytes_of(y) + bytes_of(rstd, saved, in.index, in.add, weight)});
  check("rmsnorm_forward", y, in, weight, rstd);
  if (!saved.empty()) require_shape("rmsnorm_forward", "saved", saved, y.shape);
  if (y.device == Device::kCpu) return cpu::rmsnorm_forward(y, rstd, saved, in, weight, eps);
  throw_no_device("rmsnorm_forward", y.device);
}

void rmsnorm_apply(F32 y, const RmsNormIn& in, CF32 weight, CF32 rstd) {
  const Work work("rmsnorm_apply", {.bytes = 2 * bytes_of(y) + bytes_of(rstd, in.index, in.add, weight)});
  check("rmsnorm_apply", y, in, weight, rstd);
  if (y.device == Device::kCpu) return cpu::rmsnorm_apply(y, in, weight, rstd);
  throw_no_device("rmsnorm_apply", y.device);
}

void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, const RmsNormIn& in, CF32 weight, CF32 rstd, F32 partial) {
  const Work work("rmsnorm_backward", {.bytes = 2 * bytes_of(dz) + bytes_of(dweight, dy, in.add, weight, rstd)});
  check("rmsnorm_backward", dz, in, weight, rstd);
  require(in.index.empty(), "rmsnorm_backward: x must be the saved rows, found an index; give saved rows alone");
  require_shape("rmsnorm_backward", "dy", dy, dz.shape);
  require_shape("rmsnorm_backward", "dweight", dweight.view, weight.shape);
  require_shape("rmsnorm_backward", "partial", partial, {kGradChunks, weight.numel()});
  if (dz.device == Device::kCpu) return cpu::rmsnorm_backward(dz, dweight, dy, in, weight, rstd, partial);
  throw_no_device("rmsnorm_backward", dz.device);
}

}  // namespace isobath
