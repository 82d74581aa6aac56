#include "ops/embedding.h"

#include <algorithm>

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void embedding_forward(F32 x, CI32 token, CF32 table);
void embedding_backward(Accum dtable, CF32 dx, CI32 token);
}  // namespace cpu

namespace {

// Of the rows of a table that `count` tokens ask for.
int64_t looked_up_bytes(CF32 table, int64_t count) {
  return std::min(count, table.rows()) * table.cols() * int64_t(sizeof(float));
}

}  // namespace

void embedding_forward(F32 x, CI32 token, CF32 table) {
  const Work work("embedding_forward", {.bytes = bytes_of(x, token) + looked_up_bytes(table, token.numel())});
  const int64_t N = token.numel(), V = table.rows(), D = table.cols();
  require_shape("embedding_forward", "x", x, {N, D});
  require_in_range("embedding_forward", "token", token, V, "vocabulary entries");
  if (x.device == Device::kCpu) return cpu::embedding_forward(x, token, table);
  throw_no_device("embedding_forward", x.device);
}

void embedding_backward(Accum dtable, CF32 dx, CI32 token) {
  const Work work("embedding_backward",
                  {.bytes = bytes_of(dx, token) + 2 * looked_up_bytes(dtable.view, token.numel())});
  const int64_t N = token.numel(), V = dtable.view.rows(), D = dtable.view.cols();
  require_shape("embedding_backward", "dx", dx, {N, D});
  require_in_range("embedding_backward", "token", token, V, "vocabulary entries");
  if (dx.device == Device::kCpu) return cpu::embedding_backward(dtable, dx, token);
  throw_no_device("embedding_backward", dx.device);
}

}  // namespace isobath
