#include "ops/rmsnorm.h"

#include "base/parallel.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void rmsnorm_forward(F32 y, F32 rstd, Stored saved, const RmsNormIn& in, CF32 weight, float eps);
void rmsnorm_apply(F32 y, CStored z, CF32 weight, CF32 rstd, CI32 index);
void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, CStored z, CF32 weight, CF32 rstd, F32 partial);
}  // namespace cpu

void rmsnorm_forward(F32 y, F32 rstd, Stored saved, const RmsNormIn& in, CF32 weight, float eps) {
  const char* op = "rmsnorm_forward";
  const int64_t S = rstd.numel(), N = in.x.rows(), D = weight.numel();
  const Work work(op, {.bytes = S * D * in.x.item_bytes() + bytes_of(y, rstd, saved, in.index, in.add, weight)});
  require_shape(op, "y", y, {S, D});
  require_shape(op, "x", in.x, {N, D});
  if (!in.add.empty()) require_shape(op, "add", in.add, {S, D});
  if (!saved.empty()) require_shape(op, "saved", saved, {S, D});
  require_rows(op, in.index, S, N);
  if (y.device == Device::kCpu) return cpu::rmsnorm_forward(y, rstd, saved, in, weight, eps);
  throw_no_device(op, y.device);
}

void rmsnorm_apply(F32 y, CStored z, CF32 weight, CF32 rstd, CI32 index) {
  const int64_t S = rstd.numel(), D = weight.numel(), J = index.empty() ? S : index.numel();
  const Work work("rmsnorm_apply", {.bytes = bytes_of(y, weight, index) + J * (D * z.item_bytes() + 4)});
  require_shape("rmsnorm_apply", "y", y, {J, D});
  require_shape("rmsnorm_apply", "z", z, {S, D});
  require_rows("rmsnorm_apply", index, J, S);
  if (y.device == Device::kCpu) return cpu::rmsnorm_apply(y, z, weight, rstd, index);
  throw_no_device("rmsnorm_apply", y.device);
}

void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, CStored z, CF32 weight, CF32 rstd, F32 partial) {
  const char* op = "rmsnorm_backward";
  const Work work(op, {.bytes = bytes_of(dz, dweight, dy, z, weight, rstd)});
  const Shape shape{rstd.numel(), weight.numel()};
  require_shape(op, "dz", dz, shape);
  require_shape(op, "z", z, shape);
  require_shape(op, "dy", dy, shape);
  require_shape(op, "dweight", dweight.view, weight.shape);
  require_shape(op, "partial", partial, {kGradChunks, weight.numel()});
  if (dz.device == Device::kCpu) return cpu::rmsnorm_backward(dz, dweight, dy, z, weight, rstd, partial);
  throw_no_device(op, dz.device);
}

}  // namespace isobath
