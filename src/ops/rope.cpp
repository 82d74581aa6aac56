#include "ops/rope.h"

#include <algorithm>

#include "base/error.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void rope_table(F32 table, double theta);
void rope_forward(Stored y, CF32 x, CI32 position, CF32 table, int64_t heads);
void rope_backward(F32 dx, CI32 position, CF32 table, int64_t heads);
}  // namespace cpu

namespace {

void check(const char* op, CF32 x, CI32 position, CF32 table, int64_t heads) {
  const int64_t K = table.cols();
  require(table.shape.rank() == 2 && K > 0 && K % 2 == 0, "{}: table is {}, expected (positions, K) with K even", op,
          table.shape);
  require(x.shape.rank() == 2 && heads >= 0 && heads * K <= x.cols(),
          "{}: {} heads of {} floats do not fit into the rows of x {}", op, heads, K, x.shape);
  require(position.numel() == x.rows(), "{}: position is {}, expected one for each row of x {}", op, position.shape,
          x.shape);
  for (int64_t s = 0; s < position.numel(); s++)
    require(position[s] >= 0 && position[s] < table.rows(),
            "{}: position {} of row {} is outside the table of {} positions; raise the longest length", op, position[s],
            s, table.rows());
}

// Whole rows, or in place the heads that are rotated; and the table's rows.
int64_t rotation_bytes(CStored y, CF32 x, CI32 position, CF32 table, int64_t heads) {
  const int64_t S = x.rows(), float_bytes = int64_t(sizeof(float));
  const bool in_place = static_cast<const void*>(y.data) == x.data;
  const int64_t rows = in_place ? 2 * S * heads * table.cols() * float_bytes : bytes_of(x, y);
  return rows + std::min(S, table.rows()) * table.cols() * float_bytes + bytes_of(position);
}

}  // namespace

void rope_table(F32 table, double theta) {
  const Work work("rope_table", {.bytes = bytes_of(table)});
  require(table.shape.rank() == 2 && table.cols() > 0 && table.cols() % 2 == 0,
          "rope_table: table is {}, expected (positions, K) with K even", table.shape);
  require(theta > 0, "rope_table: theta is {}, expected more than 0", theta);
  if (table.device == Device::kCpu) return cpu::rope_table(table, theta);
  throw_no_device("rope_table", table.device);
}

void rope_forward(Stored y, CF32 x, CI32 position, CF32 table, int64_t heads) {
  const Work work("rope_forward", {.bytes = rotation_bytes(y, x, position, table, heads)});
  check("rope_forward", x, position, table, heads);
  require_shape("rope_forward", "y", y, x.shape);
  if (x.device == Device::kCpu) return cpu::rope_forward(y, x, position, table, heads);
  throw_no_device("rope_forward", x.device);
}

void rope_backward(F32 dx, CI32 position, CF32 table, int64_t heads) {
  const Work work("rope_backward", {.bytes = rotation_bytes(dx, dx, position, table, heads)});
  check("rope_backward", dx, position, table, heads);
  if (dx.device == Device::kCpu) return cpu::rope_backward(dx, position, table, heads);
  throw_no_device("rope_backward", dx.device);
}

}  // namespace isobath
