#include "ops/residual_add.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void residual_add_forward(F32 x, Stored delta, CI32 index, CF32 gate, CF32 a, CF32 m);
void residual_add_backward(F32 ddelta, F32 dgate, CF32 dx, CI32 index, CF32 gate, CStored delta);
void scatter_add(F32 dx, CI32 index, CF32 da, CF32 db);
void router_backward_input(F32 dx, CF32 dr, CF32 w);
}  // namespace cpu

void residual_add_forward(F32 x, Stored delta, CI32 index, CF32 gate, CF32 a, CF32 m) {
  const char* op = "residual_add_forward";
  const Work work(op, {.bytes = (x.empty() ? 0 : 2 * bytes_of(a)) + bytes_of(a, m, delta, gate, index)});
  const int64_t S = a.shape[0];
  if (!m.empty()) require_shape(op, "m", m, a.shape);
  if (!delta.empty()) require_shape(op, "delta", delta, a.shape);
  if (x.empty()) require(!delta.empty(), "{}: neither x nor delta is given; give one of them", op);
  if (!x.empty()) require_shape(op, "a", a, {S, x.cols()});
  if (!gate.empty()) require_shape(op, "gate", gate, {S});
  if (!x.empty()) require_ascending_rows(op, index, S, x.rows());
  if (a.device == Device::kCpu) return cpu::residual_add_forward(x, delta, index, gate, a, m);
  throw_no_device(op, a.device);
}

void residual_add_backward(F32 ddelta, F32 dgate, CF32 dx, CI32 index, CF32 gate, CStored delta) {
  const char* op = "residual_add_backward";
  const Work work(
      op, {.bytes = 2 * bytes_of(ddelta) + bytes_of(gate, index) + (dgate.empty() ? 0 : bytes_of(dgate, delta))});
  const int64_t S = ddelta.shape[0];
  require_shape(op, "ddelta", ddelta, {S, dx.cols()});
  if (!gate.empty()) require_shape(op, "gate", gate, {S});
  if (!dgate.empty()) {
    require_shape(op, "dgate", dgate, {S});
    require_shape(op, "delta", delta, ddelta.shape);
  }
  require_rows(op, index, S, dx.rows());
  if (dx.device == Device::kCpu) return cpu::residual_add_backward(ddelta, dgate, dx, index, gate, delta);
  throw_no_device(op, dx.device);
}

void scatter_add(F32 dx, CI32 index, CF32 da, CF32 db) {
  const Work work("scatter_add", {.bytes = 2 * bytes_of(da) + bytes_of(da, db, index)});
  const int64_t S = da.shape[0];
  require_shape("scatter_add", "da", da, {S, dx.cols()});
  if (!db.empty()) require_shape("scatter_add", "db", db, da.shape);
  require_ascending_rows("scatter_add", index, S, dx.rows());
  if (dx.device == Device::kCpu) return cpu::scatter_add(dx, index, da, db);
  throw_no_device("scatter_add", dx.device);
}

void router_backward_input(F32 dx, CF32 dr, CF32 w) {
  const Work work("router_backward_input", {.bytes = 2 * bytes_of(dx) + bytes_of(dr, w)});
  require_shape("router_backward_input", "dx", dx, {dr.numel(), w.numel()});
  if (dx.device == Device::kCpu) return cpu::router_backward_input(dx, dr, w);
  throw_no_device("router_backward_input", dx.device);
}

}  // namespace isobath
