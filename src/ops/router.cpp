#include "ops/router.h"

#include "base/parallel.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void router_score(F32 r, CF32 x, CF32 w, CF32 b);
void router_score_normed(F32 r, F32 rstd, CF32 x, CF32 w, CF32 b, float eps);
void router_backward_weight(Accum dw, Accum db, CF32 dr, CStored x, CI32 index, F32 partial, const RouterRms& rms);
void router_backward_input_normed(F32 dx, CF32 dr, CF32 x, CF32 w, CF32 b, CF32 r, CF32 rstd);
void restore_rows(F32 x, CI32 index, CStored saved);
void gate_forward(F32 g, CF32 r, CI32 index, Gate gate);
void gate_backward(F32 dr, CF32 dg, CF32 r, CI32 index, Gate gate);
}  // namespace cpu

void router_score(F32 r, CF32 x, CF32 w, CF32 b) {
  const Work work("router_score", {.multiply_adds = x.numel(), .bytes = bytes_of(r, x, w, b)});
  require_shape("router_score", "x", x, {r.numel(), w.numel()});
  if (!b.empty()) require_shape("router_score", "b", b, {1});
  if (r.device == Device::kCpu) return cpu::router_score(r, x, w, b);
  throw_no_device("router_score", r.device);
}

void router_score_normed(F32 r, F32 rstd, CF32 x, CF32 w, CF32 b, float eps) {
  const char* op = "router_score_normed";
  const Work work(op, {.multiply_adds = x.numel(), .bytes = bytes_of(r, rstd, x, w, b)});
  require_shape(op, "x", x, {r.numel(), w.numel()});
  require_shape(op, "rstd", rstd, r.shape);
  if (!b.empty()) require_shape(op, "b", b, {1});
  if (r.device == Device::kCpu) return cpu::router_score_normed(r, rstd, x, w, b, eps);
  throw_no_device(op, r.device);
}

void router_backward_weight(Accum dw, Accum db, CF32 dr, CStored x, CI32 index, F32 partial, const RouterRms& rms) {
  const char* op = "router_backward_weight";
  const int64_t N = x.rows(), D = dw.view.numel(), read = dr.numel() * x.cols();
  const int64_t scales = rms.rstd.empty() ? 0 : dr.numel();
  const Work work(
      op, {.multiply_adds = read,
           .bytes = read * x.item_bytes() + scales * int64_t(sizeof(float)) + bytes_of(dw, db, dr, index, rms.row)});
  require_shape(op, "x", x, {N, D});
  if (!db.view.empty()) require_shape(op, "db", db.view, {1});
  require_shape(op, "partial", partial, {kGradChunks, D});
  require_rows(op, index, dr.numel(), N);
  if (!rms.rstd.empty()) require_rows(op, rms.row, dr.numel(), rms.rstd.numel());
  if (x.device == Device::kCpu) return cpu::router_backward_weight(dw, db, dr, x, index, partial, rms);
  throw_no_device(op, x.device);
}

void router_backward_input_normed(F32 dx, CF32 dr, CF32 x, CF32 w, CF32 b, CF32 r, CF32 rstd) {
  const char* op = "router_backward_input_normed";
  const Work work(op, {.bytes = 2 * bytes_of(dx) + bytes_of(dr, x, w, b, r, rstd)});
  require_shape(op, "dx", dx, {dr.numel(), w.numel()});
  require_shape(op, "x", x, dx.shape);
  require_shape(op, "r", r, dr.shape);
  require_shape(op, "rstd", rstd, dr.shape);
  if (dx.device == Device::kCpu) return cpu::router_backward_input_normed(dx, dr, x, w, b, r, rstd);
  throw_no_device(op, dx.device);
}

void restore_rows(F32 x, CI32 index, CStored saved) {
  const int64_t written = saved.shape.numel() * int64_t(sizeof(float));
  const Work work("restore_rows", {.bytes = written + bytes_of(saved, index)});
  require_shape("restore_rows", "saved", saved, {saved.rows(), x.cols()});
  require_ascending_rows("restore_rows", index, saved.rows(), x.rows());
  if (x.device == Device::kCpu) return cpu::restore_rows(x, index, saved);
  throw_no_device("restore_rows", x.device);
}

void gate_forward(F32 g, CF32 r, CI32 index, Gate gate) {
  const Work work("gate_forward", {.bytes = 2 * bytes_of(g) + bytes_of(index)});
  require_rows("gate_forward", index, g.numel(), r.numel());
  if (g.device == Device::kCpu) return cpu::gate_forward(g, r, index, gate);
  throw_no_device("gate_forward", g.device);
}

void gate_backward(F32 dr, CF32 dg, CF32 r, CI32 index, Gate gate) {
  const Work work("gate_backward", {.bytes = 2 * bytes_of(dr) + bytes_of(dg, index)});
  require_rows("gate_backward", index, dr.numel(), r.numel());
  require_shape("gate_backward", "dg", dg, {dr.numel()});
  if (dr.device == Device::kCpu) return cpu::gate_backward(dr, dg, r, index, gate);
  throw_no_device("gate_backward", dr.device);
}

}  // namespace isobath
