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
  int64_t block;
  const RouterWeights& weights;
  const Linear& fc1;
  Scratch& scratch;
};

// Scores every row of x, chooses, and leaves score, choice (list), gate and statistics in r.
// With the top-k choice r.agreement says what the causal rule would have chosen; with the causal choice it is empty.
// Throws Error{kWork} naming block and row if a score is not finite.
void choose_rows(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch, const Selection& how);

// The auxiliary loss of a top-k choice, finished in the forward pass: its targets are known, and its gradients need x
// of every row, which nobody keeps. `scale` is 1 / (routed blocks * rows of the optimizer step).
//   causal = bce:        dscore is set, the router's weight gradient added (times aux_weight)
//   causal = predictor:  the predictor's gradients are added; x gets none
// dscore is zero where no auxiliary loss reaches it.
void auxiliary_loss(const RouterContext& c, RouterWeights& gradient, RouterActs& r, CF32 x, double scale);

}  // namespace isobath
