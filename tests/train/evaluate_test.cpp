#include "train/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/thread_count.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

constexpr int64_t kT = 20, kV = 31;

ModelConfig tiny(Causal causal, Scope scope) {
  ModelConfig c;
  c.vocab_size = kV;
  c.hidden_size = 16;
  c.num_hidden_layers = 4;
  c.routing.topology = Topology::kJoint;
  c.routing.capacity = {0.3};
  c.routing.causal = causal;
  c.routing.capacity_scope = c.routing.attention_scope = scope;
  resolve(c, kT);
  return c;
}

// Routers start near zero: scaled up, so that what is routed where shows in the loss.
std::unique_ptr<Model> random_model(const ModelConfig& config) {
  auto model = std::make_unique<Model>(config);
  initialize(model->weights, 7);
  for (size_t i = 0; i < model->weights.list().size(); i++)
    if (model->weights.list()[i].kind == Kind::kRouter)
      for (float& w : std::span(model->weights.at(i).data, size_t(model->weights.at(i).numel()))) w *= 50;
  return model;
}

// One document of `size` tokens, of which the last is eos; with `every` > 0 cut into documents of so many tokens.
TokenStream random_stream(int64_t size, int64_t every = 0) {
  const Rng rng(11, Stream::kBench);
  std::vector<std::vector<int32_t>> documents(1);
  for (int64_t i = 0; i < size; i++) {
    if (every > 0 && i % every == every - 1) documents.emplace_back();
    documents.back().push_back(int32_t(rng.below(kV - 1, uint64_t(i))));
  }
  documents.back().pop_back();
  return stream_of(documents, kV - 1);
}

Evaluation evaluate(const ModelConfig& config, const TokenStream& text, int64_t batch, SelectBy by,
                    int64_t windows = 0) {
  const auto model = random_model(config);
  Evaluator evaluator(config, text,
                      {.T = kT,
                       .B = batch,
                       .capacity_scope = config.routing.capacity_scope,
                       .attention_scope = config.routing.attention_scope,
                       .max_documents = 3});
  model->prepare(evaluator.rows());
  return evaluator.run(*model, {.by = by}, windows);
}

void expect_same(const Evaluation& a, const Evaluation& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.entropy, b.entropy);
  EXPECT_EQ(a.targets, b.targets);
  EXPECT_EQ(a.rows, b.rows);
  ASSERT_EQ(a.layer.size(), b.layer.size());
  for (size_t i = 0; i < a.layer.size(); i++) {
    EXPECT_EQ(a.layer[i].section.index, b.layer[i].section.index);
    EXPECT_EQ(a.layer[i].routed, b.layer[i].routed);
    EXPECT_EQ(a.layer[i].rows, b.layer[i].rows);
    EXPECT_EQ(a.layer[i].agreement.rows, b.layer[i].agreement.rows);
    EXPECT_EQ(a.layer[i].agreement.both, b.layer[i].agreement.both);
    EXPECT_EQ(a.layer[i].agreement.said, b.layer[i].agreement.said);
  }
}

TEST(Evaluator, same_bits_at_any_batch_size_and_on_any_threads) {
  for (const Causal causal : {Causal::kBce, Causal::kPredictor})
    for (const Scope scope : {Scope::kSequence, Scope::kDocument})
      for (const SelectBy by : {SelectBy::kTopK, SelectBy::kCausal}) {
        const ModelConfig config = tiny(causal, scope);
        const TokenStream text = random_stream(kT * 17 + 9, scope == Scope::kDocument ? 13 : 0);
        const Evaluation want = evaluate(config, text, 1, by);
        ASSERT_EQ(want.layer.size(), 2u);
        ASSERT_GT(want.layer[0].routed, 0);
        ASSERT_LT(want.layer[0].routed, want.rows);
        for (const int threads : {1, 2})
          for (const int64_t batch : {1, 3, 16}) {
            const ThreadCount count(threads);
            SCOPED_TRACE(batch);
            expect_same(evaluate(config, text, batch, by), want);
          }
      }
}

TEST(Evaluator, the_last_window_is_shorter_and_every_token_is_scored_once) {
  const ModelConfig config = tiny(Causal::kBce, Scope::kSequence);
  for (const int64_t size : {int64_t{2}, kT, kT + 1, kT + 2, 4 * kT + 7}) {
    const TokenStream text = random_stream(size);
    ASSERT_EQ(text.size(), size);
    const Evaluation all = evaluate(config, text, 3, SelectBy::kTopK);
    EXPECT_EQ(all.targets, size - 1);
    EXPECT_EQ(all.rows, size - 1);
    const int64_t whole = (size - 1) / kT, rest = size - 1 - whole * kT;
    if (whole == 0 || rest == 0) continue;
    const Evaluation begin = evaluate(config, text, 3, SelectBy::kTopK, whole);
    EXPECT_EQ(begin.targets, whole * kT);
    std::vector<int32_t> tail(size_t(rest) + 1);
    text.read(whole * kT, tail);
    tail.pop_back();  // eos comes back
    const Evaluation end =
        evaluate(config, stream_of(std::vector<std::vector<int32_t>>{tail}, kV - 1), 1, SelectBy::kTopK);
    EXPECT_EQ(end.targets, rest);
    EXPECT_NEAR(all.loss * double(size - 1), begin.loss * double(whole * kT) + end.loss * double(rest), 1e-9);
    EXPECT_EQ(all.layer[0].routed, begin.layer[0].routed + end.layer[0].routed);
  }
}

TEST(Evaluator, targets_across_documents_are_not_scored) {
  const ModelConfig config = tiny(Causal::kBce, Scope::kDocument);
  const TokenStream text = random_stream(10 * kT, 13);
  EXPECT_EQ(evaluate(config, text, 3, SelectBy::kTopK).targets, text.size() - text.documents());
}

TEST(Evaluator, tells_of_its_progress) {
  const ModelConfig config = tiny(Causal::kBce, Scope::kSequence);
  const auto model = random_model(config);
  Evaluator evaluator(config, random_stream(5 * kT + 1), {.T = kT, .B = 2});
  model->prepare(evaluator.rows());
  std::vector<int64_t> heard;
  evaluator.run(*model, {}, 0, [&](int64_t done, int64_t of) {
    heard.push_back(done);
    EXPECT_EQ(of, 5);
  });
  EXPECT_EQ(heard, (std::vector<int64_t>{2, 4, 5}));
}

}  // namespace
}  // namespace isobath
