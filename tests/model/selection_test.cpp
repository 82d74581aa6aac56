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
  const F32 w = model.weights.weights().section[size_t(l)].router.w;
  std::fill_n(w.data, w.numel(), value);
}

// ---- top-k

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
  SectionWeights& block = model.weights.weights().section[1];
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
    moved.weights.weights().section[0].router.offset[0] = offset;
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

// ---- scores that are no numbers (invariant 15)

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
  model.weights.weights().section[0].down[2] = std::numeric_limits<float>::quiet_NaN();
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
