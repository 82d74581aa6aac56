// The parts of each rule: thresholds, token choice, random and fixed controls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "model/selection.h"
#include "support/compare.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

void set_router(TinyModel& model, int64_t l, float value) {
  const F32 w = model.weights.weights().section[size_t(l)].router.w;
  std::fill_n(w.data, w.numel(), value);
}

// ---- causal = threshold

ModelConfig by_threshold(double capacity) {
  ModelConfig c = tiny_routed(capacity);
  c.routing.causal = Causal::kThreshold;
  return c;
}

TEST(Threshold, PartsScoresByTheStoredNumber) {
  TinyModel model(by_threshold(0.4), {.sequences = 1, .T = 30}, Purpose::kForward);
  const TinyBatch batch(random_sequences({30}, model.config.vocab_size), model.config);
  const F32 threshold = model.weights.weights().section[1].router.threshold;
  for (const float t : {-0.7f, 0.0f, 0.3f}) {
    threshold[0] = t;
    for (const float depth : {0.0f, 0.25f}) {
      model.forward(batch, {.by = SelectBy::kCausal, .depth = depth});
      std::vector<int32_t> want;
      for (int32_t n = 0; n < 30; n++)
        if (model.router(1).score[n] - t + depth > 0) want.push_back(n);
      EXPECT_EQ(model.chosen(1), want) << t << " " << depth;
    }
  }
}

TEST(Threshold, MinusInfinityRoutesAll) {
  TinyModel model(by_threshold(1.0), {.sequences = 1, .T = 9}, Purpose::kForward);
  model.weights.weights().section[1].router.threshold[0] = -std::numeric_limits<float>::infinity();
  const TinyBatch batch(random_sequences({9}, model.config.vocab_size), model.config);
  model.forward(batch, {.by = SelectBy::kCausal});
  EXPECT_EQ(model.router(1).list.rows, 9);
  model.forward(batch, {.by = SelectBy::kCausal, .depth = -std::numeric_limits<float>::infinity()});
  EXPECT_EQ(model.router(1).list.rows, 0);
}

// The k-th and the (k+1)-th score of every run, sorted plainly.
TEST(Threshold, IsMeasuredBetweenTheLastTakenAndTheFirstLeft) {
  TinyModel model(by_threshold(0.3), {.sequences = 4, .T = 20});
  const std::vector<int64_t> lengths{20, 9, 1, 14};  // nothing is left of one row
  const TinyBatch batch(random_sequences(lengths, model.config.vocab_size), model.config);
  model.step(batch);
  double sum = 0;
  int64_t begin = 0;
  for (const int64_t T : lengths) {
    std::vector<float> score(model.router(1).score.data + begin, model.router(1).score.data + begin + T);
    begin += T;
    std::sort(score.begin(), score.end(), std::greater<>());
    const size_t k = size_t(std::max<int64_t>(1, int64_t(0.3 * double(T) + 1e-9)));
    if (k < score.size()) sum += (double(score[k - 1]) + double(score[k])) / 2;
  }
  EXPECT_EQ(model.router(1).midpoints.runs, 3);
  EXPECT_NEAR(model.router(1).midpoints.sum, sum, 1e-12);
}

TEST(Threshold, IsTheBiasCorrectedMeanOfTheSteps) {
  float t = 0;
  double sum = 0, weight = 0;
  for (int64_t step = 1; step <= 300; step++) {
    const double measured = std::sin(double(step));
    t = next_threshold(t, step, {.sum = 3 * measured, .runs = 3}, 0.5);
    sum = 0.99 * sum + 0.01 * measured;
    weight = 0.99 * weight + 0.01;
    ASSERT_NEAR(t, sum / weight, 3e-6) << step;  // of 300 roundings to fp32
  }
  EXPECT_EQ(next_threshold(t, 301, {}, 0.5), t) << "a step that measured nothing";
  EXPECT_EQ(next_threshold(t, 301, {}, 1), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(next_threshold(-std::numeric_limits<float>::infinity(), 302, {.sum = 4, .runs = 2}, 0.5), 2.0f);
}

TEST(Threshold, HasNoGradient) {
  TinyModel model(by_threshold(0.3), {.sequences = 1, .T = 20});
  model.step(TinyBatch(random_sequences({20}, model.config.vocab_size), model.config));
  EXPECT_EQ(model.gradient.weights().section[1].router.threshold[0], 0);
  EXPECT_EQ(model.router(1).auxiliary_sum, 0);
}

// ---- choice = token

ModelConfig token_choice(double capacity) {
  ModelConfig c = tiny_routed(capacity);
  c.routing.choice = Choice::kToken;
  c.routing.gate = Gate::kSigmoid;
  c.routing.causal = Causal::kNone;
  return c;
}

TEST(TokenChoice, TakesTheFirstThatWantToUpToTheCapacity) {
  for (const double capacity : {0.125, 0.25, 1.0}) {
    TinyModel model(token_choice(capacity), {.sequences = 2, .T = 32});
    const TinyBatch batch(random_sequences({32, 20}, model.config.vocab_size), model.config);
    model.step(batch);
    std::vector<int32_t> want;
    int64_t dropped = 0;
    for (const auto& [begin, T] : {std::pair{0, 32}, {32, 20}}) {
      int64_t room = std::max<int64_t>(1, int64_t(capacity * T + 1e-9));
      for (int32_t n = begin; n < begin + T; n++) {
        if (!(model.router(1).score[n] > 0)) continue;
        if (room-- > 0)
          want.push_back(n);
        else
          dropped++;
      }
    }
    EXPECT_EQ(model.chosen(1), want) << capacity;
    EXPECT_EQ(model.router(1).dropped, dropped) << capacity;
    EXPECT_EQ(model.router(1).agreement.said, int64_t(want.size()) + dropped);
    if (capacity == 0.125) {
      EXPECT_GT(dropped, 0) << "the test must drop something";
    }
    for (size_t s = 0; s < want.size(); s++)
      EXPECT_NEAR(model.router(1).gate[int64_t(s)], 1 / (1 + std::exp(-model.router(1).score[want[s]])), 1e-6);
  }
}

TEST(TokenChoice, HasNoCapCausally) {
  TinyModel model(token_choice(0.125), {.sequences = 1, .T = 32}, Purpose::kForward);
  model.forward(TinyBatch(random_sequences({32}, model.config.vocab_size), model.config), {.by = SelectBy::kCausal});
  EXPECT_EQ(model.router(1).list.rows,
            std::count_if(model.router(1).score.data, model.router(1).score.data + 32, [](float r) { return r > 0; }));
  EXPECT_GT(model.router(1).list.rows, 4);
  EXPECT_EQ(model.router(1).dropped, 0);
}

// Nobody wants to: the block's gradients are zeros, the router's are those of the balance (invariant 14).
TEST(TokenChoice, MayTrainABlockOnNoRows) {
  ModelConfig c = token_choice(0.5);
  c.routing.router_bias = true;
  TinyModel model(c, {.sequences = 2, .T = 9});
  set_router(model, 1, 0);
  model.weights.weights().section[1].router.bias[0] = -1;
  const TinyBatch batch(random_sequences({9, 6}, c.vocab_size), model.config);
  EXPECT_TRUE(std::isfinite(model.step(batch)));
  EXPECT_EQ(model.router(1).list.rows, 0);
  const SectionWeights& g = model.gradient.weights().section[1];
  for (int64_t i = 0; i < g.down.numel(); i++) ASSERT_EQ(g.down[i], 0);
  for (int64_t i = 0; i < g.q.numel(); i++) ASSERT_EQ(g.q[i], 0);
  const double p = 1 / (1 + std::exp(1.0));
  EXPECT_NEAR(g.router.bias[0], 2 * (p - 0.5) * p * (1 - p), 1e-6);  // one block, the mean over two runs
  EXPECT_NEAR(model.router(1).auxiliary_sum, 2 * (p - 0.5) * (p - 0.5), 1e-6);
}

// ---- the random router

ModelConfig random_router(double capacity) {
  ModelConfig c = tiny_routed(capacity);
  c.routing.every = 1;
  c.routing.router = Router::kRandom;
  c.routing.causal = Causal::kNone;
  return c;
}
std::vector<float> scores(TinyModel& model, const TinyBatch& batch, int64_t l, const Selection& how) {
  model.forward(batch, how);
  const float* score = model.router(l).score.data;
  return {score, score + batch.rows()};
}

TEST(RandomRouter, IsAFunctionOfSeedStepSequenceBlockAndPosition) {
  TinyModel model(random_router(0.4), {.sequences = 2, .T = 12}, Purpose::kForward);
  const TinyBatch batch(random_sequences({12, 12}, model.config.vocab_size), model.config);
  const auto base = scores(model, batch, 0, {.step = 7});
  EXPECT_EQ(base, scores(model, batch, 0, {.step = 7}));
  EXPECT_NE(base, scores(model, batch, 0, {.step = 8}));
  model.config.routing.router_seed = 2;
  EXPECT_NE(base, scores(model, batch, 0, {.step = 7}));
  model.config.routing.router_seed = 0;
  EXPECT_NE(base, scores(model, batch, 1, {.step = 7}));
  EXPECT_NE(base, scores(model, batch, 0, {.step = -1}));
  EXPECT_EQ(scores(model, batch, 0, {.step = -1}), scores(model, batch, 0, {.step = -1}));
  EXPECT_NE(std::vector(base.begin(), base.begin() + 12), std::vector(base.begin() + 12, base.end()));
}

TEST(RandomRouter, CausalRuleHasTheShareOfTheCapacity) {
  for (const double capacity : {0.125, 0.5, 1.0}) {
    TinyModel model(random_router(capacity), {.sequences = 40, .T = 50}, Purpose::kForward);
    const TinyBatch batch(random_sequences(std::vector<int64_t>(40, 50), model.config.vocab_size), model.config);
    model.forward(batch, {.by = SelectBy::kCausal});
    const double share = double(model.router(0).list.rows) / 2000;
    EXPECT_NEAR(share, capacity, 4 * std::sqrt(capacity * (1 - capacity) / 2000) + 1e-9) << capacity;
  }
}

TEST(RandomRouter, HasNoWeightsAndNoAuxiliaryLoss) {
  TinyModel model(random_router(0.4), {.sequences = 1, .T = 12});
  for (const WeightInfo& info : model.weights.list()) EXPECT_EQ(info.name.find("router"), std::string::npos);
  model.step(TinyBatch(random_sequences({12}, model.config.vocab_size), model.config), {.step = 0});
  EXPECT_EQ(model.router(0).auxiliary_sum, 0);
}

// ---- controls by position

ModelConfig by_position(Router router, double capacity) {
  ModelConfig c = tiny_routed(capacity);
  c.routing.router = router;
  c.routing.causal = Causal::kNone;
  return c;
}

TEST(FirstRouter, TakesTheFirstRowsOfEverySequence) {
  TinyModel model(by_position(Router::kFirst, 0.25), {.sequences = 3, .T = 16});
  model.step(TinyBatch(random_sequences({16, 5, 9}, model.config.vocab_size), model.config));
  EXPECT_EQ(model.chosen(1), (std::vector<int32_t>{0, 1, 2, 3, 16, 21, 22}));
  for (int64_t s = 0; s < 7; s++) EXPECT_EQ(model.router(1).gate[s], 1);
}

TEST(FirstRouter, RoutesTheShareOfTheLongestContextCausally) {
  ModelConfig c = by_position(Router::kFirst, 0.25);
  c.max_position_embeddings = 20;  // 5 rows
  TinyModel model(c, {.sequences = 2, .T = 16}, Purpose::kForward);
  const TinyBatch batch(random_sequences({16, 3}, c.vocab_size), model.config);
  model.forward(batch, {.by = SelectBy::kCausal});
  EXPECT_EQ(model.chosen(1), (std::vector<int32_t>{0, 1, 2, 3, 4, 16, 17, 18}));
  model.forward(batch, {.by = SelectBy::kCausal, .depth = 0.1f});  // a tenth of 20 more
  EXPECT_EQ(model.chosen(1), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 16, 17, 18}));
}

TEST(SpacedRouter, TakesTheRowsOfTheFormulaByBothSelections) {
  for (const double capacity : {0.125, 0.3, 1.0 / 3, 0.7, 1.0}) {
    TinyModel model(by_position(Router::kSpaced, capacity), {.sequences = 2, .T = 40});
    const TinyBatch batch(random_sequences({40, 7}, model.config.vocab_size), model.config);
    std::vector<int32_t> want;
    for (int32_t n = 0; n < 47; n++) {
      const double p = n < 40 ? n : n - 40;
      if (std::floor((p + 1) * capacity + 1e-9) > std::floor(p * capacity + 1e-9)) want.push_back(n);
    }
    model.step(batch);
    EXPECT_EQ(model.chosen(1), want) << capacity;
    EXPECT_EQ(model.router(1).agreement.both, int64_t(want.size())) << capacity;
    EXPECT_EQ(model.router(1).agreement.said, int64_t(want.size())) << capacity;
    for (size_t s = 0; s < want.size(); s++) EXPECT_EQ(model.router(1).gate[int64_t(s)], 1);
    int64_t of_first = std::count_if(want.begin(), want.end(), [](int32_t n) { return n < 40; });
    EXPECT_EQ(of_first, int64_t(std::floor(40 * capacity + 1e-9))) << capacity;
  }
}

TEST(SpacedRouter, MayTakeNoRowOfAShortSequence) {
  TinyModel model(by_position(Router::kSpaced, 0.125), {.sequences = 1, .T = 16});
  EXPECT_TRUE(std::isfinite(model.step(TinyBatch(random_sequences({7}, model.config.vocab_size), model.config))));
  EXPECT_EQ(model.router(1).list.rows, 0);
}

// What the controls are for: no weights, nothing to learn.
TEST(PositionRouters, HaveNoWeightsAndNoAuxiliaryLoss) {
  for (const Router router : {Router::kFirst, Router::kSpaced}) {
    TinyModel model(by_position(router, 0.4), {.sequences = 1, .T = 12});
    for (const WeightInfo& info : model.weights.list()) EXPECT_EQ(info.name.find("router"), std::string::npos);
    model.step(TinyBatch(random_sequences({12}, model.config.vocab_size), model.config));
    EXPECT_EQ(model.router(1).auxiliary_sum, 0);
  }
}

}  // namespace
}  // namespace isobath
