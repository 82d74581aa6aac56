// What a generator does around the model: stopping, streaming, refusing, counting.
#include "generate/generate.h"

#include "base/error.h"
#include "generate/tiny_model.h"

namespace isobath {
namespace {

using namespace testing;

Request request_of(int64_t prompt, uint64_t seed, int64_t max_tokens = 40) {
  return {.prompt = random_prompt(prompt, seed),
          .max_tokens = max_tokens,
          .stop = {},
          .stop_at_eos = true,
          .sampling = {.temperature = 0.8, .seed = seed}};
}

Result generate(Model& model, const Request& request) {
  Generator g(model, Tokenizer::bytes(), {});
  g.begin({&request, 1});
  g.run();
  return g.result(0);
}

// The message of the Error that f throws.
template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Generate, GreedyWithoutASeedIsTheSameTwice) {
  const auto model = tiny_model(tiny_config());
  Request request = request_of(5, 1);
  request.sampling = {.temperature = 0, .seed = 1};
  const Result first = generate(*model, request);
  request.sampling.seed = 99;
  EXPECT_EQ(generate(*model, request).tokens, first.tokens);
}

TEST(Generate, SeedOfARequestCountsAndItsPlaceInTheBatchDoesNot) {
  const auto model = tiny_model(tiny_config());
  Request a = request_of(5, 1), b = a;
  b.sampling.seed = 2;
  Generator g(*model, Tokenizer::bytes(), {.sequences = 3});
  const std::vector<Request> requests{b, a, a};
  g.begin(requests);
  g.run();
  EXPECT_EQ(g.result(1).tokens, g.result(2).tokens);
  EXPECT_NE(g.result(0).tokens, g.result(1).tokens);
  EXPECT_EQ(generate(*model, a).tokens, g.result(1).tokens);
  EXPECT_EQ(generate(*model, b).tokens, g.result(0).tokens);
}

TEST(Generate, StopStringThatSpansTokensEndsTheTextAndIsNotShown) {
  const auto model = tiny_model(tiny_config());
  Request request = request_of(4, 3);
  const Result whole = generate(*model, request);
  ASSERT_EQ(whole.finish, Finish::kMaxTokens);
  ASSERT_GT(whole.text.size(), 30u);
  size_t at = 20;  // a place where a character begins
  while ((uint8_t(whole.text[at]) & 0xC0) == 0x80) at++;
  size_t end = at + 6;
  while ((uint8_t(whole.text[end]) & 0xC0) == 0x80) end++;
  request.stop = {"never in the text", whole.text.substr(at, end - at)};
  std::string streamed;
  Generator g(*model, Tokenizer::bytes(), {});
  g.begin({&request, 1}, [&](int64_t, std::string_view piece) { streamed += piece; });
  g.run();
  EXPECT_EQ(g.result(0).finish, Finish::kStop);
  EXPECT_EQ(g.result(0).text, whole.text.substr(0, whole.text.find(request.stop[1])));
  EXPECT_EQ(streamed, g.result(0).text);
  EXPECT_LT(g.result(0).drawn(), whole.drawn());
}

TEST(Generate, EndOfTextTokenEndsASequenceAndIsNotShown) {
  ModelConfig config = tiny_config();
  Request request = request_of(4, 3);
  const Result whole = generate(*tiny_model(config), request);
  const int32_t eos = whole.tokens[4 + 10];
  config.eos_token_id = {256, eos};
  const auto model = tiny_model(config);
  const Result cut = generate(*model, request);
  EXPECT_EQ(cut.finish, Finish::kEos);
  EXPECT_EQ(cut.tokens.back(), eos);
  EXPECT_EQ(std::find(cut.tokens.begin() + 4, cut.tokens.end(), eos), cut.tokens.end() - 1);
  request.stop_at_eos = false;
  EXPECT_EQ(generate(*model, request).tokens, whole.tokens);
}

TEST(Generate, ContextIsReadToItsLastTokenAndOneMoreIsDrawn) {
  const auto model = tiny_model(tiny_config(kRules[0], 24));
  for (const int64_t prompt : {20, 24}) {
    const Result r = generate(*model, request_of(prompt, 3, 100));
    EXPECT_EQ(r.finish, Finish::kContext);
    EXPECT_EQ(r.tokens.size(), 25u);
  }
}

TEST(Generate, FinishedSequencesStayAsTheyAreWhileOthersGoOn) {
  const auto model = tiny_model(tiny_config());
  const std::vector<Request> requests{request_of(3, 1, 2), request_of(9, 2, 20)};
  Generator g(*model, Tokenizer::bytes(), {.sequences = 2});
  std::string text[2];
  g.begin(requests, [&](int64_t b, std::string_view piece) { text[b] += piece; });
  int64_t steps = 1;
  while (g.step()) steps++;
  EXPECT_EQ(steps, 20);
  EXPECT_FALSE(g.step());
  for (int64_t b = 0; b < 2; b++) {
    EXPECT_EQ(g.result(b).drawn(), requests[size_t(b)].max_tokens);
    EXPECT_EQ(text[b], g.result(b).text);
  }
}

TEST(Generate, StatisticsCountTokensAndRowsExactly) {
  const auto model = tiny_model(tiny_config());
  const std::vector<Request> requests{request_of(3, 1, 5), request_of(9, 2, 5)};
  Generator g(*model, Tokenizer::bytes(), {.sequences = 2, .max_rows = 4});
  g.begin(requests);
  g.run();
  const Statistics s = g.statistics();
  EXPECT_EQ(s.prefill_tokens, 12);
  EXPECT_EQ(s.decode_tokens, 8);
  EXPECT_GT(s.decode_tokens_per_second(), 0);
  for (size_t l = 0; l < 4; l++) {
    const int64_t entries = g.cache().slot(int64_t(l), 0).length + g.cache().slot(int64_t(l), 1).length;
    EXPECT_EQ(s.layer[l].rows, entries);
    EXPECT_EQ(s.layer[l].kv_used_bytes, entries * 2 * 20 * 4);
    EXPECT_EQ(s.layer[l].kv_dense_bytes, 20 * 2 * 20 * 4);
  }
}

TEST(Generate, EmptyPromptStartsWithTheStartToken) {
  EXPECT_EQ(prompt_tokens(Tokenizer::bytes(), ""), std::vector<int32_t>{256});
  EXPECT_EQ(prompt_tokens(Tokenizer::bytes(), "ab"), (std::vector<int32_t>{'a', 'b'}));
  const auto model = tiny_model(tiny_config());
  Request request{.prompt = prompt_tokens(Tokenizer::bytes(), ""), .max_tokens = 4};
  EXPECT_EQ(generate(*model, request).drawn(), 4);
}

TEST(Generate, ModelWithoutACausalRuleIsRefusedBeforeWork) {
  const auto model = tiny_model(tiny_config({"none", Router::kLearned, Causal::kNone}));
  const std::string message = message_of([&] { Generator(*model, Tokenizer::bytes(), {}); });
  EXPECT_NE(message.find("causal = none"), std::string::npos) << message;
}

TEST(Generate, BadRequestsAreRefusedWithTheNumbers) {
  const auto model = tiny_model(tiny_config(kRules[0], 24));
  Generator g(*model, Tokenizer::bytes(), {});
  const auto refusal = [&](Request request) { return message_of([&] { g.begin({&request, 1}); }); };
  EXPECT_NE(refusal(request_of(25, 1)).find("25 tokens, the model's context 24"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {300}}).find("token 300 is outside the model's vocabulary of 257"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {-1}}).find("token -1"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {}}).find("has no token"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .max_tokens = 0}).find("max_tokens"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .stop = {""}}).find("stop string"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .sampling = {.temperature = -1}}).find("temperature"), std::string::npos);
  const std::vector<Request> two(2, request_of(3, 1));
  EXPECT_NE(message_of([&] { g.begin(two); }).find("2 prompts, expected 1 to 1"), std::string::npos);
  const Request good = request_of(3, 1, 2);
  g.begin({&good, 1});
  g.run();
  EXPECT_NE(message_of([&] { g.rollback(0, 3); }).find("which drew 2"), std::string::npos);
  EXPECT_NE(refusal(request_of(25, 1)), "no error");
  EXPECT_EQ(g.result(0).drawn(), 2) << "a refused request left its mark";
}

TEST(Generate, DamagedWeightsStopWithBlockOrTokenNamed) {
  const auto model = tiny_model(tiny_config());
  Generator g(*model, Tokenizer::bytes(), {});
  const Request request = request_of(3, 1, 2);
  model->weights.weights().embed.row(request.prompt[0])[0] = std::numeric_limits<float>::quiet_NaN();
  g.begin({&request, 1});
  EXPECT_NE(message_of([&] { g.run(); }).find("block 1"), std::string::npos);
}

}  // namespace
}  // namespace isobath
