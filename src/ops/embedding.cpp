#include "ops/embedding.h"

#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void embedding_forward(F32 x, CI32 token, CF32 table);
void embedding_backward(Accum dtable, CF32 dx, CI32 token);
}  // namespace cpu

void embedding_forward(F32 x, CI32 token, CF32 table) {
  const int64_t N = token.numel(), V = table.rows(), D = table.cols();
  require_shape("embedding_forward", "x", x, {N, D});
  require_in_range("embedding_forward", "token", token, V, "vocabulary entries");
  if (x.device == Device::kCpu) return cpu::embedding_forward(x, token, table);
  throw_no_device("embedding_forward", x.device);
}

void embedding_backward(Accum dtable, CF32 dx, CI32 token) {
  const int64_t N = token.numel(), V = dtable.view.rows(), D = dtable.view.cols();
  require_shape("embedding_backward", "dx", dx, {N, D});
  require_in_range("embedding_backward", "token", token, V, "vocabulary entries");
  if (dx.device == Device::kCpu) return cpu::embedding_backward(dtable, dx, token);
  throw_no_device("embedding_backward", dx.device);
}

}  // namespace isobath
