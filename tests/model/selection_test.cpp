// Who is routed: exact counts, ties, documents, causal rules, the random control, scores that are no numbers
// (invariants 6 and 15).
#include "model/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "support/compare.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

void set_router(TinyModel& model, int64_t l, float value) {
  const F32 w = model.weights.weights().block[size_t(l)].router.w;
  std::fill_n(w.data, w.numel(), value);
}

// ---- top-k
// --------------------------------------------------------------------------------------------------------------

TEST(TopK, EqualScoresSelectTheEarliest) {
  TinyModel model(tiny_routed(0.25), {.sequences = 3, .T = 16});
  set_router(model, 1, 0);
  model.forward(TinyBatch(random_sequences({16, 5, 9}, model.config.vocab_size), model.config));
  EXPECT_EQ(model.chosen(1), (std::vector<int32_t>{0, 1, 2, 3, 16, 21, 22}));
}

TEST(TopK, RepeatedTokenIsATie) {
  ModelConfig config = tiny_routed(0.5, 1);
  config.routing.blocks = {0};
  TinyModel model(config, {.sequences = 1, .T = 6});
  model.forward(TinyBatch({{.id = 1, .documents = {{4, 4, 4, 4, 4, 4}}}}, model.config));
  EXPECT_EQ(model.chosen(0), (std::vector<int32_t>{0, 1, 2}));
}

TEST(TopK, TakesExactlyItsCount) {
  TinyModel model(tiny_routed(0.125), {.sequences = 2, .T = 16});
  for (int64_t T = 1; T <= 16; T++) {
    model.step(TinyBatch(random_sequences({T, T}, model.config.vocab_size), model.config));
    const int64_t k = std::max<int64_t>(1, T / 8);
    const std::vector<int32_t> chosen = model.chosen(1);
    ASSERT_EQ(int64_t(chosen.size()), 2 * k) << T;
    EXPECT_TRUE(std::is_sorted(chosen.begin(), chosen.end())) << T;
    EXPECT_EQ(std::count_if(chosen.begin(), chosen.end(), [&](int32_t n) { return n < T; }), k) << T;
  }
}

TEST(TopK, OfDocumentsTakesFromEach) {
  ModelConfig config = tiny_routed(0.5);
  config.routing.capacity_scope = Scope::kDocument;
  const std::vector<Sequence> packed{random_sequence(1, {5, 1, 4}, config.vocab_size)};
  TinyModel model(config, limits_for(packed));
  model.step(TinyBatch(packed, model.config));
  const std::vector<int32_t> chosen = model.chosen(1);
  ASSERT_EQ(chosen.size(), 5u);  // 2, 1, 2
  EXPECT_LT(chosen[1], 5);
  EXPECT_EQ(chosen[2], 5);
  EXPECT_GE(chosen[3], 6);
}

// ---- causal rules
// -------------------------------------------------------------------------------------------------------

struct Rule {
  const char* name;
  Router router;
  Causal causal;
};
class CausalRule : public ::testing::TestWithParam<Rule> {
 protected:
  ModelConfig config() const {
    ModelConfig c = tiny_routed();
    c.routing.router = GetParam().router;
    c.routing.causal = GetParam().causal;
    return c;
  }
};
INSTANTIATE_TEST_SUITE_P(Rules, CausalRule,
                         ::testing::Values(Rule{"bce", Router::kLearned, Causal::kBce},
                                           Rule{"predictor", Router::kLearned, Causal::kPredictor},
                                           Rule{"threshold", Router::kLearned, Causal::kThreshold},
                                           Rule{"random", Router::kRandom, Causal::kNone},
                                           Rule{"first", Router::kFirst, Causal::kNone},
                                           Rule{"spaced", Router::kSpaced, Causal::kNone}),
                         [](const auto& info) { return info.param.name; });

TEST_P(CausalRule, ShareIsOneOrZeroWhereDepthForcesIt) {
  TinyModel model(config(), {.sequences = 2, .T = 10}, Purpose::kForward);
  const TinyBatch batch(random_sequences({10, 7}, model.config.vocab_size), model.config);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float depth : {infinity, -infinity}) {
    const double loss = model.forward(batch, {.by = SelectBy::kCausal, .depth = depth});
    EXPECT_TRUE(std::isfinite(loss)) << depth;
    EXPECT_EQ(model.router(1).list.rows, depth > 0 ? 17 : 0);
    for (int64_t i = 0; i < 17 * model.config.hidden_size; i++) ASSERT_TRUE(std::isfinite(model.acts.x[i]));
  }
}

// With nothing routed the model is the model without its routed blocks.
TEST_P(CausalRule, ShareZeroSkipsTheBlock) {
  TinyModel model(config(), {.sequences = 1, .T = 9}, Purpose::kForward);
  const TinyBatch batch(random_sequences({9}, model.config.vocab_size), model.config);
  model.forward(batch, {.by = SelectBy::kCausal, .depth = -1e30f});
  const std::vector<double> skipped = run_reference(model, batch).loss;
  BlockWeights& block = model.weights.weights().block[1];
  std::fill_n(block.o.data, block.o.numel(), 0.0f);
  std::fill_n(block.down.data, block.down.numel(), 0.0f);
  model.products.pack(model.weights.weights());
  model.forward(batch, {.by = SelectBy::kCausal, .depth = 1e30f});
  for (size_t n = 0; n < skipped.size(); n++) EXPECT_NEAR(model.acts.loss[int64_t(n)], skipped[n], 1e-5);
}

TEST_P(CausalRule, DepthRoutesMore) {
  TinyModel model(config(), {.sequences = 1, .T = 40}, Purpose::kForward);
  const TinyBatch batch(random_sequences({40}, model.config.vocab_size), model.config);
  int64_t last = 0;
  for (const float depth : {-5.0f, -0.5f, 0.0f, 0.5f, 5.0f}) {
    model.forward(batch, {.by = SelectBy::kCausal, .depth = depth});
    EXPECT_GE(model.router(1).list.rows, last) << depth;
    last = model.router(1).list.rows;
  }
  EXPECT_GT(last, 0);
}

// An offset is a depth of the model's own, block by block.
TEST_P(CausalRule, OffsetIsAddedToTheLogit) {
  ModelConfig c = config();
  c.routing.blocks = {0};
  TinyModel plain(c, {.sequences = 1, .T = 40}, Purpose::kForward);
  c.routing.router_offset = true;
  TinyModel moved(c, {.sequences = 1, .T = 40}, Purpose::kForward);
  const TinyBatch batch(random_sequences({40}, c.vocab_size), plain.config);
  for (const float offset : {-0.4f, 0.0f, 0.3f}) {
    moved.weights.weights().block[0].router.offset[0] = offset;
    plain.forward(batch, {.by = SelectBy::kCausal, .depth = offset});
    moved.forward(batch, {.by = SelectBy::kCausal});
    EXPECT_EQ(moved.chosen(0), plain.chosen(0)) << offset;
    const int64_t chosen = moved.router(0).list.rows;
    moved.forward(batch);
    EXPECT_EQ(moved.router(0).agreement.said, chosen) << "the report is of the rule as it is";
    plain.forward(batch);
    EXPECT_EQ(moved.chosen(0), plain.chosen(0)) << "top-k does not see the offset";
  }
}

// What the report says of the rule is what the rule does: its share is that of a causal pass over the same rows.
TEST_P(CausalRule, AgreementIsCountedAgainstTheRule) {
  ModelConfig c = config();
  c.routing.blocks = {0};  // sees the same rows under both selections
  TinyModel model(c, {.sequences = 2, .T = 12}, Purpose::kForward);
  const TinyBatch batch(random_sequences({12, 9}, c.vocab_size), model.config);
  model.forward(batch);
  const Agreement agreement = model.router(0).agreement;
  const std::vector<int32_t> top = model.chosen(0);
  model.forward(batch, {.by = SelectBy::kCausal});
  const std::vector<int32_t> rule = model.chosen(0);
  std::vector<int32_t> both;
  std::set_intersection(top.begin(), top.end(), rule.begin(), rule.end(), std::back_inserter(both));
  EXPECT_EQ(agreement.rows, 21);
  EXPECT_EQ(agreement.chosen, int64_t(top.size()));
  EXPECT_EQ(agreement.said, int64_t(rule.size()));
  EXPECT_EQ(agreement.both, int64_t(both.size()));
  EXPECT_EQ(model.router(0).agreement.rows, 0) << "a causal choice has nothing to agree with";
}

// ---- causal = threshold
// ---------------------------------------------------------------------------------------------------

ModelConfig by_threshold(double capacity) {
  ModelConfig c = tiny_routed(capacity);
  c.routing.causal = Causal::kThreshold;
  return c;
}

TEST(Threshold, PartsScoresByTheStoredNumber) {
  TinyModel model(by_threshold(0.4), {.sequences = 1, .T = 30}, Purpose::kForward);
  const TinyBatch batch(random_sequences({30}, model.config.vocab_size), model.config);
  const F32 threshold = model.weights.weights().block[1].router.threshold;
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
  model.weights.weights().block[1].router.threshold[0] = -std::numeric_limits<float>::infinity();
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
  EXPECT_EQ(model.gradient.weights().block[1].router.threshold[0], 0);
  EXPECT_EQ(model.router(1).auxiliary_sum, 0);
}

// ---- choice = token
// -------------------------------------------------------------------------------------------------------

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
  EXPECT_EQ(model.router(1).list.rows, std::count_if(model.router(1).score.data, model.router(1).score.data + 32,
                                                     [](float r) { return r > 0; }));
  EXPECT_GT(model.router(1).list.rows, 4);
  EXPECT_EQ(model.router(1).dropped, 0);
}

// Nobody wants to: the block's gradients are zeros, the router's are those of the balance (invariant 14).
TEST(TokenChoice, MayTrainABlockOnNoRows) {
  ModelConfig c = token_choice(0.5);
  c.routing.router_bias = true;
  TinyModel model(c, {.sequences = 2, .T = 9});
  set_router(model, 1, 0);
  model.weights.weights().block[1].router.bias[0] = -1;
  const TinyBatch batch(random_sequences({9, 6}, c.vocab_size), model.config);
  EXPECT_TRUE(std::isfinite(model.step(batch)));
  EXPECT_EQ(model.router(1).list.rows, 0);
  const BlockWeights& g = model.gradient.weights().block[1];
  for (int64_t i = 0; i < g.down.numel(); i++) ASSERT_EQ(g.down[i], 0);
  for (int64_t i = 0; i < g.q.numel(); i++) ASSERT_EQ(g.q[i], 0);
  const double p = 1 / (1 + std::exp(1.0));
  EXPECT_NEAR(g.router.bias[0], 2 * (p - 0.5) * p * (1 - p), 1e-6);  // one block, the mean over two runs
  EXPECT_NEAR(model.router(1).auxiliary_sum, 2 * (p - 0.5) * (p - 0.5), 1e-6);
}

// ---- the random router
// --------------------------------------------------------------------------------------------------

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
// ------------------------------------------------------------------------------------------------

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

// ---- scores that are no numbers (invariant 15)
// ----------------------------------------------------------------------------

void expect_refused(TinyModel& model, const TinyBatch& batch, const Selection& how, const std::string& block,
                    const std::string& row) {
  try {
    model.forward(batch, how);
    FAIL() << "a score that is not finite was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kWork) << error.what();
    EXPECT_NE(std::string(error.what()).find(block), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(row), std::string::npos) << error.what();
  }
}

TEST(NonFiniteScore, NamesBlockAndRow) {
  ModelConfig c = tiny_routed();
  c.routing.blocks = {0, 2};
  for (const Causal causal : {Causal::kBce, Causal::kPredictor}) {  // a predictor reads x: its logit may hide the score
    c.routing.causal = causal;
    TinyModel model(c, {.sequences = 2, .T = 5}, Purpose::kForward);
    const TinyBatch batch({{.id = 1, .documents = {{1, 2, 3, 4, 5}}}, {.id = 2, .documents = {{1, 9, 2}}}}, c);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      model.weights.weights().embed[9 * c.hidden_size + 3] = bad;
      for (const SelectBy by : {SelectBy::kTopK, SelectBy::kCausal})
        expect_refused(model, batch, {.by = by}, "block 0", "row 6");
    }
  }
}

TEST(NonFiniteWeight, NamesTheFirstRouterBehindIt) {
  TinyModel model(tiny_routed(), {.sequences = 1, .T = 5});
  model.weights.weights().block[0].down[2] = std::numeric_limits<float>::quiet_NaN();
  model.products.pack(model.weights.weights());
  const TinyBatch batch(random_sequences({5}, model.config.vocab_size), model.config);
  expect_refused(model, batch, {}, "block 1", "row 0");
}

TEST(NonFiniteWeight, OfADenseModelGivesANonFiniteLoss) {
  TinyModel model(tiny_config(), {.sequences = 1, .T = 5});
  model.weights.weights().norm[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(std::isfinite(model.forward(TinyBatch(random_sequences({5}, model.config.vocab_size), model.config))));
}

}  // namespace
}  // namespace isobath
