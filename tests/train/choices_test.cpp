#include "train/choices.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/evaluate.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

constexpr int64_t kT = 24;

std::unique_ptr<Model> random_model(Causal causal) {
  ModelConfig c;
  c.vocab_size = Tokenizer::bytes().vocab_size();
  c.hidden_size = 16;
  c.num_hidden_layers = 4;
  c.routing.topology = Topology::kJoint;
  c.routing.capacity = {0.3};
  c.routing.causal = causal;
  resolve(c, kT);
  auto model = std::make_unique<Model>(c);
  initialize(model->weights, 7);
  for (size_t i = 0; i < model->weights.list().size(); i++)
    for (float& w : std::span(model->weights.at(i).data, size_t(model->weights.at(i).numel()))) w *= 5;
  return model;
}

// Nats of all tokens of a text but the first.
double nats_of(Model& model, const std::string& text, SelectBy by) {
  std::vector<std::vector<int32_t>> documents{Tokenizer::bytes().encode(text)};
  const int32_t last = documents[0].back();
  documents[0].pop_back();
  Evaluator evaluator(model.config(), stream_of(documents, last), {.T = kT, .B = 1});
  model.prepare(evaluator.rows());
  const Evaluation e = evaluator.run(model, {.by = by});
  return e.loss * double(e.targets);
}

const std::vector<ChoiceQuestion> kQuestions{
    {"the cat", {"sat", "ran away", "o"}, 0}, {"two and two ", {"four", "five"}, 1}, {"x", {"y", "zz"}, 0}};

// The causal choice sees nothing of what comes: what a choice costs is what the whole costs less the context.
TEST(Choices, LogLikelihoodIsThatOfTheWholeLessTheContext) {
  const auto model = random_model(Causal::kBce);
  const ChoiceResult result =
      answer_choices(*model, Tokenizer::bytes(), kQuestions, {.by = SelectBy::kCausal}, {.T = kT, .B = 4});
  ASSERT_EQ(result.log_likelihood.size(), kQuestions.size());
  for (size_t q = 0; q < kQuestions.size(); q++)
    for (size_t c = 0; c < kQuestions[q].choices.size(); c++) {
      const std::string stem = q == 1 ? "two and two" : kQuestions[q].context;
      const std::string whole = kQuestions[q].context + " " + kQuestions[q].choices[c];
      const double context = stem.size() > 1 ? nats_of(*model, stem, SelectBy::kCausal) : 0;
      EXPECT_NEAR(result.log_likelihood[q][c], context - nats_of(*model, whole, SelectBy::kCausal), 1e-4) << whole;
    }
}

TEST(Choices, AChoiceHasTheSameBitsInAnyBatch) {
  const auto model = random_model(Causal::kBce);
  for (const SelectBy by : {SelectBy::kTopK, SelectBy::kCausal}) {
    const auto alone = answer_choices(*model, Tokenizer::bytes(), kQuestions, {.by = by}, {.T = kT, .B = 1});
    for (const int64_t B : {2, 3, 100})
      EXPECT_EQ(answer_choices(*model, Tokenizer::bytes(), kQuestions, {.by = by}, {.T = kT, .B = B}).log_likelihood,
                alone.log_likelihood);
  }
}

TEST(Choices, AnswersAreCountedBothWays) {
  const auto model = random_model(Causal::kBce);
  const Selection how{.by = SelectBy::kCausal};
  const auto ll = answer_choices(*model, Tokenizer::bytes(), kQuestions, how, {.T = kT}).log_likelihood;
  std::vector<ChoiceQuestion> right = kQuestions, wrong = kQuestions, by_length = kQuestions;
  for (size_t q = 0; q < right.size(); q++) {
    size_t most = 0, per_character = 0;
    for (size_t c = 1; c < ll[q].size(); c++) {
      if (ll[q][c] > ll[q][most]) most = c;
      if (ll[q][c] * double(right[q].choices[per_character].size()) >
          ll[q][per_character] * double(right[q].choices[c].size()))
        per_character = c;
    }
    right[q].answer = int64_t(most);
    wrong[q].answer = int64_t((most + 1) % ll[q].size());
    by_length[q].answer = int64_t(per_character);
  }
  const auto count = [&](const std::vector<ChoiceQuestion>& questions) {
    return answer_choices(*model, Tokenizer::bytes(), questions, how, {.T = kT});
  };
  EXPECT_EQ(count(right).likeliest.right, 3);
  EXPECT_EQ(count(right).likeliest.error(), 0);
  EXPECT_EQ(count(wrong).likeliest.right, 0);
  EXPECT_EQ(count(by_length).per_character.right, 3);
  EXPECT_NE(by_length[0].answer, right[0].answer) << "the two ways must differ somewhere for this test to see";
  EXPECT_NEAR(count(right).chance, (1.0 / 3 + 0.5 + 0.5) / 3, 1e-12);
  EXPECT_NEAR((Accuracy{.right = 1, .of = 4}.error()), std::sqrt(0.25 * 0.75 / 3), 1e-12);
}

TEST(Choices, OfLongTextsTheLastTokensAreRead) {
  const auto model = random_model(Causal::kBce);
  const std::string tail = "abcdefghijklmnopqrst";
  const std::vector<ChoiceQuestion> shorter{{tail, {"uvwx", "y"}, 0}}, longer{{"before it " + tail, {"uvwx", "y"}, 0}};
  const Selection how{.by = SelectBy::kCausal};
  const auto a = answer_choices(*model, Tokenizer::bytes(), shorter, how, {.T = kT});
  const auto b = answer_choices(*model, Tokenizer::bytes(), longer, how, {.T = kT});
  EXPECT_EQ(a.shortened, 0);
  EXPECT_EQ(b.shortened, 2);
  EXPECT_EQ(a.log_likelihood[0][0], b.log_likelihood[0][0]) << "25 tokens of both";
  const std::vector<ChoiceQuestion> huge{{"a", {std::string(kT + 1, 'b'), "c"}, 0}};
  expect_in(error_of([&] { answer_choices(*model, Tokenizer::bytes(), huge, how, {.T = kT}); }).what(),
            "question 1: choice 0 has 26 tokens");
}

TEST(Choices, AnEmptyContextBeginsWithBos) {
  const auto model = random_model(Causal::kBce);
  const std::vector<ChoiceQuestion> questions{{"", {"ab", "b"}, 0}};
  const auto result =
      answer_choices(*model, Tokenizer::bytes(), questions, {.by = SelectBy::kCausal}, {.T = kT, .delimiter = ""});
  EXPECT_LT(result.log_likelihood[0][0], 0);
  EXPECT_NE(result.log_likelihood[0][0], result.log_likelihood[0][1]);
}

TEST(Choices, WhatIsWrongInAFileIsNamedWithItsLine) {
  const TempDir dir;
  const auto refusal = [&](const std::string& text) {
    const auto path = dir.write("c.jsonl", text);
    return std::string(error_of([&] { read_choices(path); }).what());
  };
  const std::string good = R"({"context": "a", "choices": ["b", "c"], "answer": 1})";
  expect_in(refusal(good + "\n{}"), "c.jsonl:2: expected {\"context\"");
  expect_in(refusal("[1]"), "c.jsonl:1: expected {\"context\"");
  expect_in(refusal("{"), "c.jsonl:1");
  expect_in(refusal(R"({"context": "a", "choices": ["b"], "answer": 0})"), "two texts or more");
  expect_in(refusal(R"({"context": "a", "choices": ["b", ""], "answer": 0})"), "a choice is empty");
  expect_in(refusal(R"({"context": "a", "choices": ["b", 3], "answer": 0})"), "a choice is 3");
  expect_in(refusal(R"({"context": 1, "choices": ["b", "c"], "answer": 0})"), "context is 1");
  for (const char* answer : {"2", "-1", "0.5", "\"b\"", "true"})
    expect_in(refusal(R"({"context": "a", "choices": ["b", "c"], "answer": )" + std::string(answer) + "}"),
              "answer is");
  expect_in(refusal("\n \n"), "no questions");
  EXPECT_EQ(read_choices(dir.write("good.jsonl", "\n" + good + "\n")).size(), 1u);
}

}  // namespace
}  // namespace isobath
