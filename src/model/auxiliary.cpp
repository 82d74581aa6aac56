// What routers learn beside the language model's loss.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "model/selection.h"
#include "ops/bce.h"
#include "ops/predictor.h"
#include "ops/router.h"
#include "ops/score_losses.h"

namespace isobath {
namespace {

Midpoints midpoints_of(const RouterActs& r, CI32 run_begin) {
  Midpoints sum;
  for (int64_t run = 0; run + 1 < run_begin.numel(); run++) {
    const int64_t k = r.chosen_begin[run + 1] - r.chosen_begin[run];
    if (k == 0 || k == run_begin[run + 1] - run_begin[run]) continue;
    const int32_t* next = r.index.data + r.chosen_begin[run];
    const int32_t* const end = next + k;
    float least = std::numeric_limits<float>::infinity(), best_left = -least;
    for (int32_t n = run_begin[run]; n < run_begin[run + 1]; n++) {
      const bool chosen = next != end && *next == n;
      next += chosen;
      (chosen ? least : best_left) = chosen ? std::min(least, r.score[n]) : std::max(best_left, r.score[n]);
    }
    sum += {(double(least) + double(best_left)) / 2, 1};
  }
  return sum;
}

void predictor_loss(const RouterContext& c, RouterWeights& gradient, RouterActs& r, CF32 x, double scale) {
  const int64_t N = x.rows();
  const F32 logit = r.logit.slice(0, N), dlogit = c.scratch.dpredicted.slice(0, N);
  const F32 hidden = hidden_of(c, r, N);
  const int64_t P = hidden.cols();
  Agreement same;
  std::fill_n(dlogit.data, N, 0.0f);
  r.auxiliary_sum = bce_with_logits(add_to(dlogit), same, logit, r.list.index, float(scale));
  predictor_backward(hidden, add_to(gradient.fc1_bias), add_to(gradient.fc2.reshaped({P})), add_to(gradient.fc2_bias),
                     dlogit, c.weights.fc2.reshaped({P}), c.scratch.partial.reshaped({kGradChunks, 2 * P + 1}));
  if (!c.config.predictors_look_back()) c.fc1.backward_weight(add_to(gradient.fc1), hidden, x);
}

}  // namespace

void predictor_backward_ahead(const RouterContext& c, RouterWeights& gradient, const RouterActs& r, CF32 x) {
  c.fc1.backward_weight(add_to(gradient.fc1), hidden_of(c, r, x.rows()), x);
}

float next_threshold(float threshold, int64_t step, const Midpoints& midpoints, double capacity) {
  constexpr double kDecay = 0.99;
  if (capacity == 1) return -std::numeric_limits<float>::infinity();
  if (midpoints.runs == 0) return threshold;
  const double measured = midpoints.sum / double(midpoints.runs);
  if (!std::isfinite(threshold)) return float(measured);
  const double before = 1 - std::pow(kDecay, double(step - 1)), now = 1 - std::pow(kDecay, double(step));
  return float((kDecay * before * double(threshold) + (1 - kDecay) * measured) / now);
}

void auxiliary_loss(const RouterContext& c, RouterWeights& gradient, RouterActs& r, CF32 x, const Batch& batch,
                    const AuxiliaryScale& scale) {
  const int64_t N = x.rows();
  const RoutingConfig& o = c.config.routing;
  const CF32 score = r.score.slice(0, N);
  const F32 dscore = r.dscore.slice(0, N);
  std::fill_n(dscore.data, N, 0.0f);
  if (o.router != Router::kLearned) return;
  if (o.causal == Causal::kThreshold) r.midpoints = midpoints_of(r, batch.capacity_begin);
  if (o.causal == Causal::kPredictor) predictor_loss(c, gradient, r, x, scale.per_row);
  if (o.causal == Causal::kBce) {
    Agreement same;
    r.auxiliary_sum = bce_with_logits(add_to(dscore), same, score, r.list.index, float(scale.per_row * o.aux_weight));
  }
  if (o.choice == Choice::kToken)
    r.auxiliary_sum = balance_loss(add_to(dscore), score, batch.capacity_begin, c.config.capacity(c.section),
                                   float(scale.per_run * o.balance_weight));
  if (o.z_weight > 0) r.square_sum = square_loss(add_to(dscore), score, float(scale.per_row * o.z_weight));
  if (!c.config.has_score_loss()) return;
  const F32 partial = c.scratch.partial.reshaped({kGradChunks, x.cols()});
  router_backward_weight(add_to(gradient.w), add_to(gradient.bias), dscore, x, {}, partial, rms_of(r, N, {}));
}

}  // namespace isobath
