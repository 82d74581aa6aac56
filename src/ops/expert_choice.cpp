#include "ops/expert_choice.h"

#include <algorithm>
#include <cmath>

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
ExpertTally choose_by_token(const ExpertLists& to, CF32 logit, CF32 p, CI32 run_begin, const TokenChoice& how);
ExpertTally choose_by_expert(const ExpertLists& to, CF32 p, CI32 run_begin, double capacity,
                             const ExpertChoiceScratch& scratch);
ExpertTally choose_above(const ExpertLists& to, CF32 logit, CF32 p, CF32 offset, float depth);
void expert_weights_backward(F32 dp, CF32 dweight, CF32 p, CI32 place, ExpertWeight form);
}  // namespace cpu

namespace {

void check(const char* op, const ExpertLists& to, CF32 logit, CF32 p) {
  const int64_t S = logit.shape[0], O = logit.cols();
  require(O >= 1 && O <= kMostExpertOutputs, "{}: {} outputs, expected 1 to {}", op, O, kMostExpertOutputs);
  require(to.experts() >= 1 && to.experts() <= O, "{}: {} experts of {} outputs", op, to.experts(), O);
  require_shape(op, "p", p, logit.shape);
  require_shape(op, "place", to.place, logit.shape);
  for (int64_t i = 0; i < S * O; i++)
    if (!std::isfinite(logit[i]))
      fail_work(
          "{}: the score of row {} for output {} is {}, expected a finite number; the run has diverged: try a lower "
          "learning rate",
          op, i / O, i % O, logit[i]);
}

void check_runs(const char* op, CI32 run_begin, int64_t S) {
  const int64_t runs = run_begin.numel() - 1;
  require(runs >= 0 && run_begin[0] == 0 && run_begin[runs] == S, "{}: run_begin must lead from row 0 to row {}", op,
          S);
  for (int64_t r = 0; r < runs; r++)
    require(run_begin[r] <= run_begin[r + 1], "{}: run {} begins at row {} and ends at {}", op, r, run_begin[r],
            run_begin[r + 1]);
}

void check_room(const char* op, const ExpertLists& to, int64_t most) {
  require(to.row.numel() >= most && to.weight.numel() >= most,
          "{}: the lists have room for {} rows and {} weights, expected {} or more", op, to.row.numel(),
          to.weight.numel(), most);
}

int64_t bytes_of_lists(const ExpertLists& to, const ExpertTally& tally) {
  return bytes_of(to.begin, to.place) + 2 * tally.assigned * int64_t(sizeof(float));
}

}  // namespace

int64_t kept_rows(const TokenChoice& how, int64_t experts, int64_t T) {
  if (how.capacity_factor == 0) return T;
  const double most = how.capacity_factor * double(how.per_row) * double(T) / double(experts);
  return std::min(T, int64_t(std::ceil(most - 1e-9)));  // as much too low as capacity_rows is too high
}

int64_t kept_no_ops(const TokenChoice& how, int64_t T) {
  return how.no_op_capacity == 0 ? T : int64_t(std::floor(how.no_op_capacity * double(T) + 1e-9));
}

ExpertTally choose_by_token(const ExpertLists& to, CF32 logit, CF32 p, CI32 run_begin, const TokenChoice& how) {
  const char* op = "choose_by_token";
  const int64_t S = logit.shape[0], O = logit.cols(), E = to.experts();
  const Work work(op, {.bytes = bytes_of(logit, run_begin)});
  check(op, to, logit, p);
  check_runs(op, run_begin, S);
  require(how.per_row == 1 || (how.per_row == 2 && E >= 2 && O == E),
          "{}: {} outputs per row of {} experts and {} no-ops, expected 1, or 2 of two or more experts without no-ops",
          op, how.per_row, E, O - E);
  int64_t most = 0;
  for (int64_t r = 0; r + 1 < run_begin.numel(); r++) {
    const int64_t T = run_begin[r + 1] - run_begin[r];
    most += std::min(how.per_row * T, E * kept_rows(how, E, T));
  }
  check_room(op, to, most);
  if (p.device != Device::kCpu) throw_no_device(op, p.device);
  const ExpertTally tally = cpu::choose_by_token(to, logit, p, run_begin, how);
  count_bytes(bytes_of_lists(to, tally) + tally.assigned * int64_t(sizeof(float)));
  return tally;
}

ExpertTally choose_by_expert(const ExpertLists& to, CF32 logit, CF32 p, CI32 run_begin, double capacity,
                             const ExpertChoiceScratch& scratch) {
  const char* op = "choose_by_expert";
  const int64_t S = logit.shape[0];
  const Work work(op, {.bytes = bytes_of(logit, p, run_begin)});
  check(op, to, logit, p);
  check_runs(op, run_begin, S);
  require(to.experts() == logit.cols(), "{}: {} experts and {} no-ops, expected no no-ops", op, to.experts(),
          logit.cols() - to.experts());
  require_shape(op, "score", scratch.score, {S});
  if (p.device != Device::kCpu) throw_no_device(op, p.device);
  const ExpertTally tally = cpu::choose_by_expert(to, p, run_begin, capacity, scratch);
  count_bytes(bytes_of_lists(to, tally));
  return tally;
}

ExpertTally choose_above(const ExpertLists& to, CF32 logit, CF32 p, CF32 offset, float depth) {
  const char* op = "choose_above";
  const Work work(op, {.bytes = bytes_of(logit, offset)});
  check(op, to, logit, p);
  require(to.experts() == logit.cols(), "{}: {} experts and {} no-ops, expected no no-ops", op, to.experts(),
          logit.cols() - to.experts());
  if (!offset.empty()) require_shape(op, "offset", offset, {to.experts()});
  check_room(op, to, logit.numel());
  if (p.device != Device::kCpu) throw_no_device(op, p.device);
  const ExpertTally tally = cpu::choose_above(to, logit, p, offset, depth);
  count_bytes(bytes_of_lists(to, tally) + tally.assigned * int64_t(sizeof(float)));
  return tally;
}

void expert_weights_backward(F32 dp, CF32 dweight, CF32 p, CI32 place, ExpertWeight form) {
  const char* op = "expert_weights_backward";
  const Work work(op, {.bytes = bytes_of(dp, dweight, p, place)});
  require_shape(op, "dp", dp, p.shape);
  require_shape(op, "place", place, p.shape);
  for (int64_t i = 0; i < place.numel(); i++)
    require(place[i] < dweight.numel(), "{}: a place is {}, but there are {} weights", op, place[i], dweight.numel());
  if (p.device == Device::kCpu) return cpu::expert_weights_backward(dp, dweight, p, place, form);
  throw_no_device(op, p.device);
}

}  // namespace isobath
