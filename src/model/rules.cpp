#include "model/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "base/rng.h"
#include "model/selection_rule.h"
#include "ops/predictor.h"
#include "ops/router.h"
#include "ops/select.h"

namespace isobath {
namespace {

// Beyond any score, for thresholds and offsets that are infinite: logits stay finite, so that one that is not is an
// error.
constexpr float kFar = std::numeric_limits<float>::max() / 4;

// The quantile of N(0,1): bisection on erfc, until no number lies between, is exact enough and has no table of
// constants.
double normal_quantile(double p) {
  double low = -40, high = 40;
  for (;;) {
    const double middle = (low + high) / 2;
    if (middle <= low || middle >= high) return low;
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
  }
}

// router = random: r ~ N(0,1), a pure function of (seed, step, sequence, section, position).
void random_scores(F32 score, const RouterContext& c, const Batch& batch, const Selection& how) {
  const Rng rng(uint64_t(c.config.routing.router_seed), Stream::kRouter, uint32_t(c.section.index));
  parallel_for(batch.rows(), 4096, [&](int64_t n) {
    const uint64_t sequence = uint64_t(batch.sequence_id[batch.sequence[n]]);
    score[n] = rng.normal(uint64_t(how.step + 1), sequence << 24 | uint64_t(batch.position[n]));
  });
}

// Above 0 exactly for the first k positions of the longest context.
double first_logit(double capacity, int64_t position, int64_t context) {
  return (double(capacity_rows(capacity, context)) - double(position) - 0.5) / double(context);
}

// Above 0 exactly for spaced rows. Rounding must not move a row that lies on the border.
double spaced_logit(double capacity, int64_t position) {
  const double reached = capacity * double(position + 1) + 1e-9;
  const double logit = capacity - (reached - std::floor(reached));
  return spaced(capacity, position) ? std::max(logit, 1e-9) : std::min(logit, 0.0);
}

void predictor_logits(const RouterContext& c, RouterActs& r, CF32 x) {
  const F32 logit = r.logit.slice(0, x.rows()), hidden = hidden_of(c, r, x.rows());
  c.fc1.forward(hidden, x);  // (N,P)
  predictor_forward(logit, hidden, c.weights.fc1_bias, c.weights.fc2.reshaped({c.weights.fc2.numel()}),
                    c.weights.fc2_bias);
}

}  // namespace

void score_rows(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch, const Selection& how) {
  const F32 score = r.score.slice(0, x.rows());
  switch (c.config.routing.router) {
    case Router::kLearned:
      if (c.config.norms_router_input())
        return router_score_normed(score, r.rstd.slice(0, x.rows()), x, c.weights.w, c.weights.bias,
                                   float(c.config.rms_norm_eps));
      return router_score(score, x, c.weights.w, c.weights.bias);
    case Router::kRandom:
      return random_scores(score, c, batch, how);
    case Router::kFirst:
    case Router::kSpaced:
      std::fill_n(score.data, score.numel(), 1.0f);  // and so is the gate
  }
}

void rule_logits(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch) {
  const int64_t N = x.rows(), context = c.config.max_position_embeddings;
  const double capacity = c.config.capacity(c.section);
  const F32 logit = r.logit.slice(0, N);
  const auto each = [&](auto logit_of) {
    for (int64_t n = 0; n < N; n++) logit[n] = float(logit_of(n));
  };
  switch (c.config.routing.router) {
    case Router::kLearned: {
      if (c.config.predictors_look_back()) return;  // they are there
      if (c.config.has_predictor()) return predictor_logits(c, r, x);
      const float above = c.weights.threshold.empty() ? 0.0f : std::clamp(c.weights.threshold[0], -kFar, kFar);
      return each([&](int64_t n) { return r.score[n] - above; });
    }
    case Router::kRandom: {
      const float above = float(normal_quantile(1 - capacity));
      return each([&](int64_t n) { return r.score[n] - above; });
    }
    case Router::kFirst:
      return each([&](int64_t n) { return first_logit(capacity, batch.position[n], context); });
    case Router::kSpaced:
      return each([&](int64_t n) { return spaced_logit(capacity, batch.position[n]); });
  }
}

void predict_ahead(const RouterContext& c, RouterActs& r, CF32 x) { predictor_logits(c, r, x); }

float rule_depth(const RouterContext& c, float depth) {
  return c.weights.offset.empty() ? depth : depth + std::clamp(c.weights.offset[0], -kFar, kFar);
}

int64_t choose_for_training(const RouterContext& c, RouterActs& r, int64_t N, const Batch& batch) {
  const double capacity = c.config.capacity(c.section);
  const I32 begin = r.chosen_begin.slice(0, batch.capacity_begin.numel());
  if (c.config.routing.router == Router::kSpaced) return select_spaced(r.index, begin, batch.capacity_begin, capacity);
  if (c.config.routing.choice == Choice::kToken)
    return select_token(r.index, begin, r.score.slice(0, N), batch.capacity_begin, capacity, r.dropped);
  if (const SelectionRule rule = find_selection_rule(c.config.routing.select); rule != nullptr)
    return select_by_rule(r.index, begin, rule, r.score.slice(0, N), batch, capacity, c.scratch.select);
  return select_top_k(r.index, begin, r.score.slice(0, N), batch.capacity_begin, capacity, c.scratch.select);
}

}  // namespace isobath
