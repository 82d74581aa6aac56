#include "generate/engine_thread.h"

#include <chrono>

#include "base/error.h"
#include "generate/soak.h"

namespace isobath {
namespace {

using namespace testing;

std::string read_all(Answer& answer) {
  std::string text;
  while (const std::optional<std::string> piece = answer.next()) {
    EXPECT_FALSE(piece->empty());
    text += *piece;
  }
  return text;
}

// Answers are there before the engine's own numbers are.
void wait_until_idle(const EngineThread& engine) {
  while (engine.open() > 0) std::this_thread::yield();
}

TEST(EngineThread, StreamsGiveTheTextAndThenTheResult) {
  const Soak all(kRules[0], 4);
  EngineThread engine(*all.model, Tokenizer::bytes(), {.sequences = 2});
  std::vector<std::shared_ptr<Answer>> answers;
  for (const Request& request : all.requests) answers.push_back(engine.submit(request));
  for (size_t i = 0; i < 4; i++) {
    EXPECT_EQ(read_all(*answers[i]), all.alone[i].text);
    EXPECT_EQ(answers[i]->next(), std::nullopt);
    all.expect_answer(i, answers[i]->result());
  }
  wait_until_idle(engine);
  EXPECT_EQ(engine.statistics().finished, 4);
}

TEST(EngineThread, BadRequestsThrowWhereTheyAreSubmitted) {
  const auto model = tiny_model(tiny_config());
  EngineThread engine(*model, Tokenizer::bytes(), {});
  EXPECT_THROW(engine.submit({.prompt = {}}), Error);
  EXPECT_THROW(engine.submit({.prompt = {1}, .stop = {""}}), Error);
  EXPECT_EQ(engine.open(), 0);
}

TEST(EngineThread, WhatIsNotFinishedEndsWithTheEngine) {
  const auto model = tiny_model(tiny_config());
  std::vector<std::shared_ptr<Answer>> answers;
  {
    EngineThread engine(*model, Tokenizer::bytes(), {.sequences = 1});
    for (uint64_t i = 0; i < 20; i++)
      answers.push_back(engine.submit({.prompt = random_prompt(5, i), .max_tokens = 80, .stop_at_eos = false}));
  }
  for (const auto& answer : answers) {
    read_all(*answer);
    const Finish finish = answer->result().finish;
    EXPECT_TRUE(finish == Finish::kCancelled || finish == Finish::kMaxTokens);
  }
  EXPECT_EQ(answers.back()->result().finish, Finish::kCancelled);
}

TEST(EngineThread, FailureReachesEverybody) {
  const auto model = tiny_model(tiny_config());
  for (int64_t i = 0; i < model->weights.weights().embed.numel(); i++)
    model->weights.weights().embed[i] = std::numeric_limits<float>::quiet_NaN();
  EngineThread engine(*model, Tokenizer::bytes(), {.sequences = 1});
  const auto first = engine.submit({.prompt = {1}}), second = engine.submit({.prompt = {2}});
  EXPECT_THROW(first->result(), Error);
  if (second != nullptr) {
    EXPECT_THROW(second->next(), Error);
  }
  EXPECT_EQ(engine.submit({.prompt = {3}}, WhenFull::kWait), nullptr);
}

// Several threads submit, read, give up and wait at a short queue.
TEST(EngineThread, ManyThreads) {
  const Soak all(kRules[0], 100);
  const int64_t page = 2 * 16 * 20 * 4 + 64, each = soak_size(1000);
  EngineThread engine(*all.model, Tokenizer::bytes(),
                      {.sequences = 4, .max_rows = 32, .queue = 3, .kv_bytes = 30 * page});
  std::atomic<int64_t> refused = 0, answered = 0;
  std::vector<std::thread> users;
  for (uint64_t user = 0; user < 4; user++)
    users.emplace_back([&, user] {
      const Rng rng(user, Stream::kBench);
      for (uint64_t n = 0; n < uint64_t(each); n++) {
        const size_t i = size_t(rng.below(100, n));
        const auto answer =
            engine.submit(all.requests[i], rng.below(2, n, 1) == 0 ? WhenFull::kWait : WhenFull::kRefuse);
        if (answer == nullptr) {
          refused++;
          continue;
        }
        std::string text;
        for (int64_t pieces = rng.below(40, n, 2);; pieces--) {
          if (pieces == 0) answer->cancel();
          const auto piece = answer->next();
          if (!piece) break;
          text += *piece;
        }
        EXPECT_EQ(text, answer->result().text);
        all.expect_answer(i, answer->result());
        answered++;
      }
    });
  for (std::thread& user : users) user.join();
  EXPECT_EQ(refused + answered, 4 * each);
  EXPECT_GT(answered, each);
  wait_until_idle(engine);
  EXPECT_EQ(engine.statistics().finished, answered);
}

}  // namespace
}  // namespace isobath
