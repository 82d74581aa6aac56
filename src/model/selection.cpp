#include "model/selection.h"

#include <cmath>

#include "base/error.h"
#include "model/rules.h"
#include "ops/router.h"
#include "ops/select.h"

namespace isobath {
namespace {

Agreement compare(CF32 logit, CI32 index, int64_t rows, float depth) {
  Agreement agreement{.rows = rows, .chosen = index.numel()};
  for (int64_t n = 0; n < rows; n++) agreement.said += logit[n] + depth > 0;
  for (int64_t s = 0; s < index.numel(); s++) agreement.both += logit[index[s]] + depth > 0;
  return agreement;
}

// Positions of the chosen rows, and where each attention segment begins among them.
RowList sublist(RouterActs& r, int64_t S, const Batch& batch) {
  for (int64_t s = 0; s < S; s++) r.position[s] = batch.position[r.index[s]];
  const int64_t segments = batch.segment_begin.numel() - 1;
  int64_t s = 0;
  for (int64_t g = 0; g <= segments; g++) {
    while (s < S && r.index[s] < batch.segment_begin[g]) s++;
    r.segment_begin[g] = int32_t(s);
  }
  return {.index = r.index.slice(0, S),
          .position = r.position.slice(0, S),
          .segment_begin = r.segment_begin.slice(0, segments + 1),
          .rows = S,
          .run_begin = r.chosen_begin.slice(0, batch.capacity_begin.numel())};
}

int64_t select(const RouterContext& c, RouterActs& r, int64_t N, const Batch& batch, const Selection& how) {
  const CF32 score = r.score.slice(0, N), logit = r.logit.slice(0, N);
  const I32 begin = r.chosen_begin.slice(0, batch.capacity_begin.numel());
  try {
    if (how.by == SelectBy::kTopK) return choose_for_training(c, r, N, batch);
    // The rule's logit may hide a score that is not finite (a predictor reads x, not the score).
    for (int64_t n = 0; n < N; n++) require(std::isfinite(score[n]), "router score of row {} is {}", n, score[n]);
    return select_above(r.index, begin, logit, batch.capacity_begin, rule_depth(c, how.depth));
  } catch (const Error& error) {
    fail_work("{}: {}", c.section.name(), error.what());
  }
}

}  // namespace

void choose_rows(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch, const Selection& how) {
  const int64_t N = x.rows();
  score_rows(c, r, x, batch, how);
  const bool ruled = c.config.has_causal_rule();
  if (ruled) rule_logits(c, r, x, batch);
  require(ruled || how.by == SelectBy::kTopK, "this model has no causal rule: {}; or evaluate it by top-k",
          c.config.why_no_causal_rule());
  r.dropped = 0;
  const int64_t S = select(c, r, N, batch, how);
  r.list = sublist(r, S, batch);
  gate_forward(r.gate.slice(0, S), r.score.slice(0, N), r.list.index, c.config.routing.gate);
  r.auxiliary_sum = r.square_sum = 0;
  r.midpoints = {};
  r.agreement = ruled && how.by == SelectBy::kTopK
                    ? compare(r.logit.slice(0, N), r.list.index, N, rule_depth(c, how.depth))
                    : Agreement{};
}

}  // namespace isobath
