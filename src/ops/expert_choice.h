// Which rows an expert works on, and with which weights. Deterministic: equal scores prefer the lower output and the
// earlier row.
//
// Lists of M rows in all, expert after expert, ascending within each:
//   expert e works on row[begin[e]] ... row[begin[e+1] - 1];   row (M)   begin (E+1)   weight (M)
//   place[s,o] = j if row[j] is s in the list of expert o;  kNotChosen;  kAddsNothing: a no-op, or dropped
// logit, p (S,O) as expert_router.h gives them, the first E outputs being the experts, the rest no-ops. run_begin
// (runs+1): rows that share capacities. Lists must have room for the most that a choice can take.
//
// choose_by_token   each row takes its best `per_row` outputs.
//   per_row = 1     weight p[s,o];  per_row = 2 (no no-ops): p[s,o] over the sum of the two p, dropped ones included
//   capacity_factor f > 0: of a run of T rows each expert keeps the first ceil(f * per_row * T / E) that took it
//   no_op_capacity c > 0: of a run the first floor(c * T) rows that took a no-op keep it; later ones go to their best
//                   expert instead
//   depth           is added to the experts' scores before they are compared with the no-ops'
// choose_by_expert  of each run each expert takes its max(1, floor(capacity * T + 1e-9)) rows of largest p; weight p
// choose_above      expert e takes the rows with logit + offset[e] + depth > 0; weight p. offset (E) may be infinite;
//                   left out, it is 0
// Source: Fedus et al. 2021, arXiv:2101.03961 (one output per row); Jiang et al. 2024, arXiv:2401.04088 (two);
// Zhou et al. 2022, arXiv:2202.09368 (expert choice). Throws Error{kWork} naming a row whose score is not finite.
//
// backward:   dp of what weight is a function of, from dweight (M); places are constants. dp (S,O) is overwritten.
#pragma once

#include <algorithm>
#include <limits>

#include "tensor/view.h"

namespace isobath {

inline constexpr int64_t kMostExpertOutputs = 256;
inline constexpr int32_t kNotChosen = -1, kAddsNothing = -2;

struct ExpertLists {
  I32 place;   // (S,O)
  I32 row;     // (at least M)
  I32 begin;   // (E+1)
  F32 weight;  // (at least M)
  int64_t experts() const { return begin.numel() - 1; }
};
struct ExpertTally {
  int64_t assigned = 0;  // M
  int64_t dropped = 0;   // choices that found their expert full
  int64_t no_ops = 0;    // rows that took a no-op
};

struct TokenChoice {
  int64_t per_row = 2;
  double capacity_factor = 0;  // 0: nothing is dropped
  double no_op_capacity = 0;   // 0: no bound
  float depth = 0;
};
// Rows that an expert keeps of a run of T rows, and no-ops that a run keeps.
int64_t kept_rows(const TokenChoice& how, int64_t experts, int64_t T);
int64_t kept_no_ops(const TokenChoice& how, int64_t T);

ExpertTally choose_by_token(const ExpertLists& to, CF32 logit, CF32 p, CI32 run_begin, const TokenChoice& how);

struct ExpertChoiceScratch {
  F32 score;         // (S)
  I32 select;        // (S)
  I32 chosen_begin;  // (runs+1)
};
ExpertTally choose_by_expert(const ExpertLists& to, CF32 logit, CF32 p, CI32 run_begin, double capacity,
                             const ExpertChoiceScratch& scratch);
ExpertTally choose_above(const ExpertLists& to, CF32 logit, CF32 p, CF32 offset, float depth);
// What of offset (E), or none, is added to a logit of output o: an infinite one lies beyond any logit, and is finite.
inline float rule_offset(CF32 offset, int64_t o) {
  constexpr float kFar = std::numeric_limits<float>::max() / 4;
  return offset.empty() ? 0 : std::clamp(offset[o], -kFar, kFar);
}

enum class ExpertWeight : uint8_t { kRaw, kOverTheirSum };
void expert_weights_backward(F32 dp, CF32 dweight, CF32 p, CI32 place, ExpertWeight form);

}  // namespace isobath
