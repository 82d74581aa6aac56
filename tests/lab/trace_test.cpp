#include "lab/trace.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "lab/trace_statistics.h"
#include "model/network.h"

namespace isobath {
namespace {

ModelConfig tiny(Causal causal = Causal::kBce) {
  ModelConfig config;
  config.vocab_size = 257;
  config.hidden_size = 16;
  config.num_hidden_layers = 4;
  config.routing.topology = Topology::kJoint;
  config.routing.capacity = {0.25};
  config.routing.causal = causal;
  resolve(config, 16);
  return config;
}

std::unique_ptr<Model> ready(const ModelConfig& config) {
  auto model = std::make_unique<Model>(config);
  initialize(model->weights, 3);
  model->prepare(trace_rows(*model));
  return model;
}

std::vector<int32_t> tokens_of(std::string_view text) { return Tokenizer::bytes().encode(text); }

TEST(Trace, ChoosesAsManyAsTheCapacityInEveryWindow) {
  const auto model = ready(tiny());
  const auto tokens = tokens_of("Forty tokens are two windows and a part.");
  ASSERT_EQ(tokens.size(), 40u);
  const Trace trace = trace_text(*model, tokens, {.by = SelectBy::kTopK});
  EXPECT_EQ(trace.token, tokens);
  EXPECT_EQ(trace.entropy.size(), 40u);
  ASSERT_EQ(trace.layer.size(), 2u);
  for (const TracedLayer& layer : trace.layer) {
    const auto count = [&](int64_t begin, int64_t end) {
      int64_t n = 0;
      for (int64_t i = begin; i < end; i++) n += layer.routed[size_t(i)];
      return n;
    };
    EXPECT_EQ(count(0, 16), 4);
    EXPECT_EQ(count(16, 32), 4);
    EXPECT_EQ(count(32, 40), 2);
    EXPECT_EQ(layer.score.size(), 40u);
    EXPECT_EQ(layer.routing.agreement.rows, 40);
    EXPECT_EQ(layer.routing.routed, 10);
  }
  int64_t depth = 0;
  for (int64_t n = 0; n < 40; n++) depth += trace.depth(n);
  EXPECT_EQ(depth, 20);
}

TEST(Trace, TheCausalRuleRoutesScoresAboveZeroAndKeepsTheAgreement) {
  const auto model = ready(tiny());
  const auto tokens = tokens_of("The rule looks at one token alone.");
  const Trace trace = trace_text(*model, tokens, {.by = SelectBy::kCausal});
  for (const TracedLayer& layer : trace.layer) {
    for (size_t n = 0; n < tokens.size(); n++) EXPECT_EQ(layer.routed[n], layer.score[n] > 0);
    EXPECT_EQ(layer.routing.agreement.rows, int64_t(tokens.size()));
  }
}

TEST(Trace, LossesAreThoseOfAnEvaluation) {
  const auto model = ready(tiny());
  const auto tokens = tokens_of("Two windows of sixteen and a bit.");
  ASSERT_EQ(tokens.size(), 33u);
  const Trace trace = trace_text(*model, tokens, {.by = SelectBy::kTopK});
  ASSERT_EQ(trace.loss.size(), tokens.size());
  EXPECT_TRUE(std::isnan(trace.loss.back()));
  const std::vector<std::vector<int32_t>> documents{{tokens.begin(), tokens.end() - 1}};
  Evaluator evaluator(model->config(), stream_of(documents, tokens.back()), {.T = trace.window, .B = 1});
  const Evaluation evaluation = evaluator.run(*model, {.by = SelectBy::kTopK});
  ASSERT_EQ(evaluation.targets, 32);
  double sum = 0;
  for (size_t n = 0; n < 32; n++) sum += double(trace.loss[n]);
  EXPECT_DOUBLE_EQ(sum / 32, evaluation.loss);
}

// A window has the bits of its text alone.
TEST(Trace, WindowsDoNotSeeEachOther) {
  const auto model = ready(tiny());
  const auto both = tokens_of("sixteen letters.and another ten");
  const auto second = tokens_of("and another ten");
  const Trace together = trace_text(*model, both, {.by = SelectBy::kTopK});
  const Trace alone = trace_text(*model, second, {.by = SelectBy::kTopK});
  for (size_t n = 0; n < second.size(); n++) {
    EXPECT_EQ(together.entropy[16 + n], alone.entropy[n]);
    EXPECT_EQ(together.layer[1].routed[16 + n], alone.layer[1].routed[n]);
  }
}

TEST(Trace, ADenseModelHasNoLayers) {
  const auto model = ready(dense_twin(tiny()));
  const Trace trace = trace_text(*model, tokens_of("dense"), {.by = SelectBy::kTopK});
  EXPECT_TRUE(trace.layer.empty());
  EXPECT_EQ(trace.depth(4), 0);
  EXPECT_EQ(trace.blocks_of(4), "none");
  EXPECT_TRUE(std::isnan(depth_and_entropy(trace).value));
}

TEST(Trace, RefusesAnEmptyTextAndAMissingRule) {
  const auto model = ready(tiny(Causal::kNone));
  EXPECT_THROW(trace_text(*model, {}, {.by = SelectBy::kTopK}), Error);
  EXPECT_THROW(trace_text(*model, tokens_of("text"), {.by = SelectBy::kCausal}), Error);
}

// Bytes of one character are one piece, as deep as the deepest of them.
TEST(Pieces, AreWholeCharacters) {
  Trace trace;
  trace.token = tokens_of("a\u00E9b");
  ASSERT_EQ(trace.token.size(), 4u);
  trace.layer.push_back({.section = {.index = 1, .block = 1, .routed = true},
                         .capacity = 0.5,
                         .routed = {0, 0, 1, 1},
                         .score{},
                         .routing{}});
  const std::vector<Piece> pieces = pieces_of(trace, Tokenizer::bytes(), 4);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].text, "\u00E9");
  EXPECT_EQ(pieces[1].first, 1);
  EXPECT_EQ(pieces[1].end, 3);
  EXPECT_EQ(pieces[0].depth, 0);
  EXPECT_EQ(pieces[1].depth, 1);
  EXPECT_EQ(pieces[2].depth, 1);
  EXPECT_EQ(pieces_of(trace, Tokenizer::bytes(), 2).back().text, "\uFFFD") << "cut in the middle of a character";
}

}  // namespace
}  // namespace isobath
