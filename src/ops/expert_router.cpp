#include "ops/expert_router.h"

#include "base/parallel.h"
#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
void expert_router_forward(F32 logit, F32 p, const NormedRows& h, CF32 W);
void expert_softmax_backward(F32 dlogit, CF32 dp, CF32 p);
void expert_router_backward_weight(F32 dW, CF32 dlogit, const NormedRows& h, F32 partial);
void expert_router_backward_input(F32 dh, CF32 dlogit, CF32 W);
}  // namespace cpu

namespace {
void check_rows(const char* op, const NormedRows& h, int64_t S, int64_t D) {
  require_shape(op, "z", h.z, {S, D});
  require_shape(op, "rstd", h.rstd, {S});
  require_shape(op, "norm", h.norm, {D});
}
}  // namespace

void expert_router_forward(F32 logit, F32 p, const NormedRows& h, CF32 W) {
  const char* op = "expert_router_forward";
  const int64_t S = h.rstd.numel(), O = W.shape[0], D = W.cols();
  const Work work(op, {.multiply_adds = S * O * D, .bytes = bytes_of(logit, p, h.z, h.rstd, h.norm, W)});
  check_rows(op, h, S, D);
  require_shape(op, "logit", logit, {S, O});
  require_shape(op, "p", p, {S, O});
  if (p.device == Device::kCpu) return cpu::expert_router_forward(logit, p, h, W);
  throw_no_device(op, p.device);
}

void expert_softmax_backward(Accum dlogit, CF32 dp, CF32 p) {
  const char* op = "expert_softmax_backward";
  const Work work(op, {.bytes = bytes_of(dlogit, dp, p)});
  require_shape(op, "dlogit", dlogit.view, p.shape);
  require_shape(op, "dp", dp, p.shape);
  if (p.device == Device::kCpu) return cpu::expert_softmax_backward(dlogit.view, dp, p);
  throw_no_device(op, p.device);
}

void expert_router_backward_weight(Accum dW, CF32 dlogit, const NormedRows& h, F32 partial) {
  const char* op = "expert_router_backward_weight";
  const int64_t S = h.rstd.numel(), O = dW.view.shape[0], D = dW.view.cols();
  const Work work(op, {.multiply_adds = S * O * D, .bytes = bytes_of(dW, dlogit, h.z, h.rstd, h.norm)});
  check_rows(op, h, S, D);
  require_shape(op, "dlogit", dlogit, {S, O});
  require_shape(op, "partial", partial, {kGradChunks, O * D});
  if (dlogit.device == Device::kCpu) return cpu::expert_router_backward_weight(dW.view, dlogit, h, partial);
  throw_no_device(op, dlogit.device);
}

void expert_router_backward_input(Accum dh, CF32 dlogit, CF32 W) {
  const char* op = "expert_router_backward_input";
  const int64_t S = dh.view.shape[0], O = W.shape[0], D = W.cols();
  const Work work(op, {.multiply_adds = S * O * D, .bytes = bytes_of(dh, dlogit, W)});
  require_shape(op, "dh", dh.view, {S, D});
  require_shape(op, "dlogit", dlogit, {S, O});
  if (dlogit.device == Device::kCpu) return cpu::expert_router_backward_input(dh.view, dlogit, W);
  throw_no_device(op, dlogit.device);
}

}  // namespace isobath
