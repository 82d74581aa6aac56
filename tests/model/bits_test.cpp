// Same inputs, same bits: what the forward pass says of a sequence depends on that sequence alone (invariants 5 and 7).
#include <gtest/gtest.h>

#include <algorithm>

#include "base/parallel.h"
#include "support/compare.h"
#include "support/thread_count.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

// What a pass left for the rows [begin, begin + rows) of a batch.
struct Trace {
  std::vector<std::vector<float>> score, gate;  // per routed block
  std::vector<std::vector<int32_t>> chosen;     // relative to begin
  std::vector<float> loss, entropy, x;
};

Trace trace_of(TinyModel& model, int64_t begin, int64_t rows) {
  const auto part = [](const float* at, int64_t from, int64_t count) {
    return std::vector<float>(at + from, at + from + count);
  };
  Trace trace;
  for (int64_t l = 0; l < model.config.sections(); l++) {
    if (!model.config.section(l).routed) continue;
    trace.score.push_back(part(model.router(l).score.data, begin, rows));
    trace.chosen.emplace_back();
    trace.gate.emplace_back();
    const std::vector<int32_t> chosen = model.chosen(l);
    for (size_t s = 0; s < chosen.size(); s++) {
      if (chosen[s] < begin || chosen[s] >= begin + rows) continue;
      trace.chosen.back().push_back(chosen[s] - int32_t(begin));
      trace.gate.back().push_back(model.router(l).gate[int64_t(s)]);
    }
  }
  trace.loss = part(model.acts.loss.data, begin, rows);
  trace.entropy = part(model.acts.entropy.data, begin, rows);
  trace.x = part(model.acts.x.data, begin * model.config.hidden_size, rows * model.config.hidden_size);
  return trace;
}

void expect_same(const Trace& a, const Trace& b, const std::string& what) {
  const auto same = [&](const std::vector<float>& p, const std::vector<float>& q, const char* part) {
    ASSERT_EQ(p.size(), q.size()) << what << " " << part;
    expect_same_bits(p.data(), q.data(), int64_t(p.size()), (what + " " + part).c_str());
  };
  EXPECT_EQ(a.chosen, b.chosen) << what;
  for (size_t l = 0; l < a.score.size(); l++) {
    same(a.score[l], b.score[l], "score");
    same(a.gate[l], b.gate[l], "gate");
  }
  same(a.loss, b.loss, "loss");
  same(a.entropy, b.entropy, "entropy");
  same(a.x, b.x, "x");
}

std::vector<Trace> traces(const ModelConfig& config, const std::vector<Sequence>& sequences, const Selection& how,
                          Purpose purpose = Purpose::kTrain) {
  TinyModel model(config, limits_for(sequences), purpose);
  model.forward(TinyBatch(sequences, model.config), how);
  std::vector<Trace> result;
  int64_t begin = 0;
  for (const Sequence& s : sequences) {
    result.push_back(trace_of(model, begin, s.rows()));
    begin += s.rows();
  }
  return result;
}

// ---- whatever stands beside a sequence, in whatever order, on however many threads (invariant 5)
// ----------------------

void expect_same_each(const std::vector<Trace>& a, const std::vector<Trace>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t s = 0; s < a.size(); s++) expect_same(a[s], b[s], "sequence " + std::to_string(s));
}

void expect_alone_as_among_others(const ModelConfig& config, const std::vector<Sequence>& sequences,
                                  const Selection& how) {
  std::vector<Trace> alone;
  for (const Sequence& s : sequences) alone.push_back(traces(config, {s}, how, Purpose::kForward)[0]);
  expect_same_each(alone, traces(config, sequences, how, Purpose::kForward));
}

void expect_same_in_another_order(const ModelConfig& config, const std::vector<Sequence>& sequences,
                                  const Selection& how) {
  std::vector<Trace> backward = traces(config, {sequences.rbegin(), sequences.rend()}, how, Purpose::kForward);
  std::reverse(backward.begin(), backward.end());
  expect_same_each(traces(config, sequences, how, Purpose::kForward), backward);
}

// Of choices by top-k: training buffers have room for no other.
void expect_same_with_the_buffers_of_training(const ModelConfig& config, const std::vector<Sequence>& sequences) {
  expect_same_each(traces(config, sequences, {}, Purpose::kTrain), traces(config, sequences, {}, Purpose::kForward));
}

void expect_same_with_one_thread_and_two(const ModelConfig& config, const std::vector<Sequence>& sequences,
                                         const Selection& how) {
  const ThreadCount restored(1);
  const std::vector<Trace> one = traces(config, sequences, how, Purpose::kForward);
  set_thread_count(2);
  expect_same_each(one, traces(config, sequences, how, Purpose::kForward));
}

class EveryCase : public ::testing::TestWithParam<TinyCase> {
 protected:
  void expect_same_bits_of(const Selection& how) {
    expect_alone_as_among_others(GetParam().config, GetParam().sequences, how);
    expect_same_in_another_order(GetParam().config, GetParam().sequences, how);
    expect_same_with_one_thread_and_two(GetParam().config, GetParam().sequences, how);
  }
};
INSTANTIATE_TEST_SUITE_P(SequenceBits, EveryCase, ::testing::ValuesIn(tiny_cases()), case_name);

TEST_P(EveryCase, ByTopK) {
  expect_same_bits_of({.by = SelectBy::kTopK});
  expect_same_with_the_buffers_of_training(GetParam().config, GetParam().sequences);
}

class EveryCausalCase : public EveryCase {};
INSTANTIATE_TEST_SUITE_P(SequenceBits, EveryCausalCase, ::testing::ValuesIn(tiny_causal_cases()), case_name);

TEST_P(EveryCausalCase, ByTheRule) { expect_same_bits_of({.by = SelectBy::kCausal}); }

// Of sequences that no reference could follow.
class SequenceBits : public ::testing::TestWithParam<const char*> {
 protected:
  SequenceBits() {
    config_.max_position_embeddings = 160;
    config_.routing.router = parse_name<Router>(kind()).value_or(Router::kLearned);
    config_.routing.causal =
        has_own_rule(config_.routing.router) ? Causal::kNone : parse_name<Causal>(kind()).value_or(Causal::kBce);
    if (kind() == "token") {
      config_.routing.choice = Choice::kToken;
      config_.routing.gate = Gate::kSigmoid;
      config_.routing.causal = Causal::kNone;
    }
    how_.by = kind() == "top-k" ? SelectBy::kTopK : SelectBy::kCausal;
    if (kind() == "dense" || kind() == "experts" || kind() == "mode") config_.routing = {};
    if (kind() == "experts") config_.experts = {.experts = 4};
    if (kind() == "mode") config_.experts = {.experts = 3, .per_token = 1, .no_ops = 1};
    if (kind() == "staged") config_.experts = {.experts = 3, .choice = Choice::kExpert};
    if (kind() == "dropping") {
      config_.experts = {.experts = 3, .capacity_factor = 0.8};
      how_.by = SelectBy::kTopK;
    }
  }
  std::string kind() const { return GetParam(); }
  ModelConfig config_ = tiny_routed(0.3);
  Selection how_;
  // Longer than a key block and a register tile, shorter, one row.
  std::vector<Sequence> sequences_ = random_sequences({131, 17, 1, 64, 9}, tiny_config().vocab_size);
};
INSTANTIATE_TEST_SUITE_P(Kinds, SequenceBits,
                         ::testing::Values("top-k", "bce", "predictor", "threshold", "token", "random", "first",
                                           "spaced", "dense", "experts", "mode", "staged", "dropping"),
                         [](const auto& info) { return std::string(info.param) == "top-k" ? "topk" : info.param; });

TEST_P(SequenceBits, AloneAndAmongOthers) { expect_alone_as_among_others(config_, sequences_, how_); }
TEST_P(SequenceBits, InAnotherOrder) { expect_same_in_another_order(config_, sequences_, how_); }
TEST_P(SequenceBits, WithTheBuffersOfTraining) { expect_same_with_the_buffers_of_training(config_, sequences_); }
TEST_P(SequenceBits, WithOneThreadAndTwo) { expect_same_with_one_thread_and_two(config_, sequences_, how_); }

// Gradients have the same bits for any number of threads; the way a step is grouped may change them.
TEST(GradientBits, WithOneThreadAndTwo) {
  const std::vector<Sequence> sequences = random_sequences({70, 33}, tiny_config().vocab_size);
  ModelConfig config = tiny_routed(0.3);
  config.max_position_embeddings = 128;
  const auto gradients = [&](int threads) {
    set_thread_count(threads);
    TinyModel model(config, limits_for(sequences));
    model.step(TinyBatch(sequences, model.config));
    return model.gradients();
  };
  const int threads = thread_count();
  const std::vector<float> one = gradients(1), two = gradients(2);
  set_thread_count(threads);
  expect_same_bits(one.data(), two.data(), int64_t(one.size()));
}

// The head works in chunks of rows; a vocabulary this large makes them 256 rows.
TEST(HeadBits, DoNotDependOnTheChunk) {
  ModelConfig config = tiny_config(1);
  config.vocab_size = 4100;
  config.max_position_embeddings = 320;
  const std::vector<Sequence> sequences = random_sequences({250, 60}, config.vocab_size);
  ASSERT_EQ(head_chunk(config, 310), 256);
  const std::vector<Trace> together = traces(config, sequences, {});
  expect_same(traces(config, {sequences[1]}, {})[0], together[1], "second sequence");
}

// ---- packed documents (invariant 7)
// ---------------------------------------------------------------------------------------

class PackedDocuments : public ::testing::Test {
 protected:
  PackedDocuments() { config_.routing.capacity_scope = config_.routing.attention_scope = Scope::kDocument; }
  Trace second_document(const Sequence& packed) {
    TinyModel model(config_, limits_for({packed}));
    model.forward(TinyBatch({packed}, model.config));
    return trace_of(model, int64_t(packed.documents[0].size()), int64_t(packed.documents[1].size()));
  }
  ModelConfig config_ = tiny_routed(0.25);
  Sequence packed_ = random_sequence(1, {13, 21}, config_.vocab_size);
};

TEST_F(PackedDocuments, TheSecondHasTheBitsOfTheSecondAlone) {
  const Sequence alone{.id = 1, .documents = {packed_.documents[1]}};
  expect_same(second_document(packed_), traces(config_, {alone}, {})[0], "second document");
}

TEST_F(PackedDocuments, ChangingTheFirstLeavesTheSecond) {
  const Trace before = second_document(packed_);
  for (int32_t& token : packed_.documents[0]) token = (token + 1) % int32_t(config_.vocab_size);
  expect_same(before, second_document(packed_), "second document");
}

// With the scopes of a sequence the boundary is an ordinary token: the second document does see the first.
TEST_F(PackedDocuments, AreOneSequenceByDefault) {
  config_.routing.capacity_scope = config_.routing.attention_scope = Scope::kSequence;
  const Trace before = second_document(packed_);
  for (int32_t& token : packed_.documents[0]) token = (token + 1) % int32_t(config_.vocab_size);
  EXPECT_NE(before.loss, second_document(packed_).loss);
}

}  // namespace
}  // namespace isobath
