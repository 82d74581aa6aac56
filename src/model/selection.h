// Who is routed: one model definition, several selectors (docs/design.md, The mathematics). A new routing rule is a
// case here; nothing else in the model knows how rows were chosen.
#pragma once

#include <cstdint>

#include "model/activations.h"
#include "model/weights.h"
#include "tensor/batch.h"

namespace isobath {

enum class SelectBy : uint8_t {
  kTopK,    // training, and evaluation as in training: a fixed number per sequence
  kCausal,  // generation, and evaluation as in generation: each row on its own
};

struct Selection {
  SelectBy by = SelectBy::kTopK;
  float depth = 0;    // added to the causal rule's logit: above 0 more rows, below 0 fewer
  int64_t step = -1;  // of router = random; -1: evaluation, the same numbers every time
};

struct RouterContext {
  const ModelConfig& config;
  Section section;
  const RouterWeights& weights;
  const Linear& fc1;
  Scratch& scratch;
};

// For the router's backward pass over dscore of `rows`: with router_input = normed what their scores were divided by.
inline RouterRms rms_of(const RouterActs& r, int64_t N, CI32 rows) {
  return r.rstd.empty() ? RouterRms{} : RouterRms{r.rstd.slice(0, N), rows};
}

// With predictor_lookback, when x is the stream that the predictor reads: its logits into r.logit.
void predict_ahead(const RouterContext& c, RouterActs& r, CF32 x);
// The same predictor's first weight's gradient, when the backward pass has come back to that x.
void predictor_backward_ahead(const RouterContext& c, RouterWeights& gradient, const RouterActs& r, CF32 x);

// The predictor's hidden rows: its own where the backward pass reads them later.
inline F32 hidden_of(const RouterContext& c, const RouterActs& r, int64_t N) {
  return (r.hidden.empty() ? c.scratch.hidden : r.hidden).slice(0, N);
}

// Scores every row of x, chooses, and leaves score, choice (list), gate and statistics in r.
// With the top-k choice r.agreement says what the causal rule would have chosen; with the causal choice it is empty.
// Throws Error{kWork} naming block and row if a score is not finite.
void choose_rows(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch, const Selection& how);

// What a router learns or notes of a choice of training, finished in the forward pass: the targets are known, and the
// gradients need x of every row, which nobody keeps.
//   causal = bce:        dscore is set, the router's weight gradient added (times aux_weight)
//   causal = predictor:  the predictor's gradients are added (with lookback but the first weight's); x gets none
//   causal = threshold:  r.midpoints is set
//   choice = token:      the same of balance_weight times the balance loss (ops/score_losses.h)
//   z_weight > 0:        the same of z_weight times the sum of r[n]^2
// dscore is zero where no auxiliary loss reaches it.
struct AuxiliaryScale {
  double per_row;  // 1 / (routers * rows of the optimizer step)
  double per_run;  // 1 / (routers * capacity runs of the optimizer step)
};
void auxiliary_loss(const RouterContext& c, RouterWeights& gradient, RouterActs& r, CF32 x, const Batch& batch,
                    const AuxiliaryScale& scale);

// The threshold after optimizer step number `step` (from 1) whose runs had these midpoints:
//   t' = their mean;   t = EMA of t' with decay 0.99, bias-corrected
// A run of C = 1 has no row to leave: its threshold is -infinity. A step without midpoints leaves the threshold alone;
// an infinite one is replaced by t'. The bias-corrected value is all there is to keep: the sum it stands for is
// t (1 - 0.99^(step-1)).
float next_threshold(float threshold, int64_t step, const Midpoints& midpoints, double capacity);

}  // namespace isobath
