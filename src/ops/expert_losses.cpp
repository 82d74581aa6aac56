#include "ops/expert_losses.h"

#include "base/work.h"
#include "ops/device.h"
#include "ops/expert_choice.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
double expert_balance_loss(F32 dp, CF32 logit, CF32 p, CI32 run_begin, float scale);
double expert_imitation_loss(F32 dlogit, Agreement& agreement, CF32 logit, CI32 place, CI32 run_begin, float scale);
}  // namespace cpu

namespace {
void check_runs(const char* op, CI32 run_begin, int64_t S) {
  const int64_t runs = run_begin.numel() - 1;
  require(runs >= 0 && run_begin[0] == 0 && run_begin[runs] == S, "{}: run_begin must lead from row 0 to row {}", op,
          S);
}
}  // namespace

double expert_balance_loss(Accum dp, CF32 logit, CF32 p, CI32 run_begin, float scale) {
  const char* op = "expert_balance_loss";
  const Work work(op, {.bytes = bytes_of(dp, logit, p, run_begin)});
  require(p.cols() <= kMostExpertOutputs, "{}: {} outputs, expected at most {}", op, p.cols(), kMostExpertOutputs);
  require_shape(op, "dp", dp.view, p.shape);
  require_shape(op, "logit", logit, p.shape);
  check_runs(op, run_begin, p.shape[0]);
  if (p.device == Device::kCpu) return cpu::expert_balance_loss(dp.view, logit, p, run_begin, scale);
  throw_no_device(op, p.device);
}

double expert_imitation_loss(Accum dlogit, Agreement& agreement, CF32 logit, CI32 place, CI32 run_begin, float scale) {
  const char* op = "expert_imitation_loss";
  const Work work(op, {.bytes = bytes_of(dlogit, logit, place, run_begin)});
  require_shape(op, "dlogit", dlogit.view, logit.shape);
  require_shape(op, "place", place, logit.shape);
  check_runs(op, run_begin, logit.shape[0]);
  if (logit.device == Device::kCpu)
    return cpu::expert_imitation_loss(dlogit.view, agreement, logit, place, run_begin, scale);
  throw_no_device(op, logit.device);
}

}  // namespace isobath
