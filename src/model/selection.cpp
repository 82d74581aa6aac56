#include "model/selection.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "ops/predictor.h"
#include "ops/router.h"
#include "ops/select.h"

namespace isobath {
namespace {

// The quantile of N(0,1): bisection on erfc is exact enough and has no table of constants.
double normal_quantile(double p) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; i++) {
    const double middle = (low + high) / 2;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
  return low;
}

// router = random: r ~ N(0,1), a pure function of (seed, step, sequence, block, position).
void random_scores(F32 score, const RouterContext& c, const Batch& batch, const Selection& how) {
  const Rng rng(uint64_t(c.config.routing.router_seed), Stream::kRouter, uint32_t(c.block));
  parallel_for(batch.rows(), 4096, [&](int64_t n) {
    const uint64_t sequence = uint64_t(batch.sequence_id[batch.sequence[n]]);
    score[n] = rng.normal(uint64_t(how.step + 1), sequence << 24 | uint64_t(batch.position[n]));
  });
}

// Logits of the causal rule: routed iff logit + depth > 0. Leaves them in scratch.predicted.
void causal_logits(const RouterContext& c, const RouterActs& r, CF32 x) {
  const int64_t N = x.rows();
  const F32 logit = c.scratch.predicted.slice(0, N);
  if (c.config.has_predictor()) {
    const F32 hidden = c.scratch.hidden.slice(0, N);
    c.fc1.forward(hidden, x);  // (N,P)
    predictor_forward(logit, hidden, c.weights.fc1_bias, c.weights.fc2.reshaped({c.weights.fc2.numel()}),
                      c.weights.fc2_bias);
    return;
  }
  const bool random = c.config.routing.router == Router::kRandom;
  const float above = random ? float(normal_quantile(1 - c.config.capacity(c.block))) : 0.0f;
  for (int64_t n = 0; n < N; n++) logit[n] = r.score[n] - above;
}

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
  return {r.index.slice(0, S), r.position.slice(0, S), r.segment_begin.slice(0, segments + 1), S};
}

int64_t select(const RouterContext& c, RouterActs& r, int64_t N, const Batch& batch, const Selection& how) {
  const CF32 score = r.score.slice(0, N), logit = c.scratch.predicted.slice(0, N);
  const I32 begin = r.chosen_begin.slice(0, batch.capacity_begin.numel());
  try {
    if (how.by == SelectBy::kTopK)
      return select_top_k(r.index, begin, score, batch.capacity_begin, c.config.capacity(c.block), c.scratch.select);
    // The rule's logit may hide a score that is not finite (a predictor reads x, not the score).
    for (int64_t n = 0; n < N; n++) require(std::isfinite(score[n]), "router score of row {} is {}", n, score[n]);
    return select_above(r.index, begin, logit, batch.capacity_begin, how.depth);
  } catch (const Error& error) {
    fail_work("block {}: {}", c.block, error.what());
  }
}

}  // namespace

void choose_rows(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch, const Selection& how) {
  const int64_t N = x.rows();
  const F32 score = r.score.slice(0, N);
  if (c.config.routing.router == Router::kRandom)
    random_scores(score, c, batch, how);
  else
    router_score(score, x, c.weights.w, c.weights.bias);
  const bool ruled = c.config.has_causal_rule();
  if (ruled) causal_logits(c, r, x);
  require(ruled || how.by == SelectBy::kTopK,
          "this model was trained with causal = none and has no causal rule: evaluate it by top-k, or train it with "
          "causal = bce or predictor");
  const int64_t S = select(c, r, N, batch, how);
  r.list = sublist(r, S, batch);
  gate_forward(r.gate.slice(0, S), score, r.list.index, c.config.routing.gate);
  r.auxiliary_sum = 0;
  r.agreement = ruled && how.by == SelectBy::kTopK
                    ? compare(c.scratch.predicted.slice(0, N), r.list.index, N, how.depth)
                    : Agreement{};
}

void auxiliary_loss(const RouterContext& c, RouterWeights& gradient, RouterActs& r, CF32 x, double scale) {
  const int64_t N = x.rows();
  const F32 dscore = r.dscore.slice(0, N);
  std::fill_n(dscore.data, N, 0.0f);
  if (c.config.routing.router == Router::kRandom) return;
  Agreement same;
  if (c.config.routing.causal == Causal::kBce) {
    const CF32 score = r.score.slice(0, N);
    r.auxiliary_sum =
        bce_with_logits(add_to(dscore), same, score, r.list.index, float(scale * c.config.routing.aux_weight));
    const F32 partial = c.scratch.partial.reshaped({kGradChunks, x.cols()});
    router_backward_weight(add_to(gradient.w), add_to(gradient.bias), dscore, x, {}, partial);
  } else if (c.config.routing.causal == Causal::kPredictor) {
    const F32 logit = c.scratch.predicted.slice(0, N), dlogit = c.scratch.dpredicted.slice(0, N);
    const F32 hidden = c.scratch.hidden.slice(0, N);
    const int64_t P = hidden.cols();
    std::fill_n(dlogit.data, N, 0.0f);
    r.auxiliary_sum = bce_with_logits(add_to(dlogit), same, logit, r.list.index, float(scale));
    predictor_backward(hidden, add_to(gradient.fc1_bias), add_to(gradient.fc2.reshaped({P})), add_to(gradient.fc2_bias),
                       dlogit, c.weights.fc2.reshaped({P}), c.scratch.partial.reshaped({kGradChunks, 2 * P + 1}));
    c.fc1.backward_weight(add_to(gradient.fc1), hidden, x);
  }
}

}  // namespace isobath
