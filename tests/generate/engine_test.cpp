// What an engine does around the model: stopping, streaming, refusing, cancelling, counting.
#include "generate/engine.h"

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
  Engine engine(model, Tokenizer::bytes(), {});
  return run_all(engine, {request})[0];
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

TEST(Engine, GreedyWithoutASeedIsTheSameTwice) {
  const auto model = tiny_model(tiny_config());
  Request request = request_of(5, 1);
  request.sampling = {.temperature = 0, .seed = 1};
  const Result first = generate(*model, request);
  request.sampling.seed = 99;
  EXPECT_EQ(generate(*model, request).tokens, first.tokens);
}

TEST(Engine, SeedOfARequestCountsAndItsPlaceInTheBatchDoesNot) {
  const auto model = tiny_model(tiny_config());
  Request a = request_of(5, 1), b = a;
  b.sampling.seed = 2;
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 3});
  const std::vector<Result> results = run_all(engine, {b, a, a});
  EXPECT_EQ(results[1].tokens, results[2].tokens);
  EXPECT_NE(results[0].tokens, results[1].tokens);
  EXPECT_EQ(generate(*model, a).tokens, results[1].tokens);
  EXPECT_EQ(generate(*model, b).tokens, results[0].tokens);
}

TEST(Engine, StopStringThatSpansTokensEndsTheTextAndIsNotShown) {
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
  Result cut;
  Engine engine(*model, Tokenizer::bytes(), {});
  engine.submit(request, {.on_text = [&](std::string_view piece) { streamed += piece; },
                          .on_finish = [&](const Result& r) { cut = r; }});
  engine.run();
  EXPECT_EQ(cut.finish, Finish::kStop);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(request.stop[1])));
  EXPECT_EQ(streamed, cut.text);
  EXPECT_LT(cut.drawn(), whole.drawn());
}

TEST(Engine, EndOfTextTokenEndsASequenceAndIsNotShown) {
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

TEST(Engine, StopTokenEndsASequenceAndIsNotShown) {
  const auto model = tiny_model(tiny_config());
  Request request = request_of(4, 3);
  const Result whole = generate(*model, request);
  request.stop_tokens = {whole.tokens[4 + 7], 255};
  const Result cut = generate(*model, request);
  EXPECT_EQ(cut.finish, Finish::kStop);
  EXPECT_EQ(cut.tokens.back(), request.stop_tokens[0]);
  EXPECT_LE(cut.drawn(), 8);
  EXPECT_TRUE(whole.text.starts_with(cut.text));
}

TEST(Engine, ContextIsReadToItsLastTokenAndOneMoreIsDrawn) {
  const auto model = tiny_model(tiny_config(kRules[0], 24));
  for (const int64_t prompt : {20, 24}) {
    const Result r = generate(*model, request_of(prompt, 3, 100));
    EXPECT_EQ(r.finish, Finish::kContext);
    EXPECT_EQ(r.tokens.size(), 25u);
  }
}

TEST(Engine, PlaceOfAFinishedRequestGoesToTheNextAtOnce) {
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2});
  std::vector<int64_t> ended;
  std::vector<std::string> text(5);
  for (const int64_t tokens : {2, 20, 3, 4, 5}) {
    const size_t i = size_t(engine.waiting());
    engine.submit(request_of(3, i, tokens), {.on_text = [&text, i](std::string_view piece) { text[i] += piece; },
                                             .on_finish =
                                                 [&, i](const Result& r) {
                                                   EXPECT_EQ(r.finish, Finish::kMaxTokens);
                                                   EXPECT_EQ(r.text, text[i]);
                                                   ended.push_back(r.drawn());
                                                 }});
  }
  EXPECT_EQ(engine.waiting(), 5);
  int64_t steps = 0;
  for (; engine.step(); steps++) EXPECT_LE(engine.running(), 2);
  EXPECT_EQ(ended, (std::vector<int64_t>{2, 3, 4, 5, 20}));
  EXPECT_EQ(steps + 1, 20) << "no step was lost between one request and the next";
  EXPECT_FALSE(engine.step());
}

TEST(Engine, StatisticsCountTokensAndRowsExactly) {
  const auto model = tiny_model(tiny_config());
  const std::vector<Request> requests{request_of(3, 1, 5), request_of(9, 2, 5)};
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2});
  const std::vector<Traced> traces = run_traced(engine, requests);
  const Statistics& s = engine.statistics();
  EXPECT_EQ(s.passes, 5);
  EXPECT_EQ(s.prefill_tokens, 12);
  EXPECT_EQ(s.decode_tokens, 8);
  EXPECT_EQ(s.drawn_tokens, 10);
  EXPECT_EQ(s.finished, 2);
  EXPECT_GT(s.decode_tokens_per_second(), 0);
  const KvPages& page = engine.pool().memory();
  for (size_t l = 0; l < 4; l++) {
    const int64_t first = int64_t(traces[0].cached[l].size()), second = int64_t(traces[1].cached[l].size());
    EXPECT_EQ(s.layer[l].rows, first + second);
    EXPECT_EQ(s.layer[l].kv_used_bytes, (first + second) * 2 * 20 * 4);
    EXPECT_EQ(s.layer[l].kv_held_bytes, (pages_for(first) + pages_for(second)) * page.page_bytes());
    EXPECT_EQ(s.layer[l].kv_dense_bytes, 20 * 2 * 20 * 4);
  }
}

TEST(Engine, FullQueueRefusesUntilThereIsRoom) {
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 1, .queue = 2});
  EXPECT_EQ(engine.submit(request_of(3, 1, 2)), 0);
  EXPECT_EQ(engine.submit(request_of(3, 1, 2)), 1);
  EXPECT_EQ(engine.submit(request_of(3, 1, 2)), std::nullopt);
  EXPECT_EQ(engine.waiting(), 2);
  engine.step();
  EXPECT_EQ(engine.submit(request_of(3, 1, 2)), 2);
  engine.run();
  EXPECT_EQ(engine.statistics().finished, 3);
}

TEST(Engine, CancelledRequestsEndWithWhatTheyHaveAndOthersDoNotNotice) {
  const auto model = tiny_model(tiny_config());
  const Request request = request_of(6, 4);
  const Result whole = generate(*model, request);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 3});
  std::vector<Result> results(5);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < 5;
       i++)  // the first cancels the second from inside a step, the last waits when it is cancelled
    ids.push_back(*engine.submit(request, {.on_token =
                                               [&, i](const Result& r, CF32) {
                                                 if (i == 0 && r.drawn() == 3) engine.cancel(ids[1]);
                                               },
                                           .on_finish = [&, i](const Result& r) { results[i] = r; }}));
  while (engine.find(ids[2])->drawn() < 5) engine.step();
  EXPECT_TRUE(engine.cancel(ids[2]));
  EXPECT_TRUE(engine.cancel(ids[4]));
  EXPECT_EQ(results[2].finish, Finish::kCancelled);
  EXPECT_FALSE(engine.cancel(ids[4]));
  EXPECT_FALSE(engine.cancel(99));
  engine.run();
  for (const size_t i : {0u, 3u}) EXPECT_EQ(results[i].tokens, whole.tokens);
  EXPECT_EQ(results[1].finish, Finish::kCancelled);
  EXPECT_EQ(results[1].drawn(), 3);
  EXPECT_EQ(results[2].drawn(), 5);
  EXPECT_EQ(results[4].drawn(), 0);
  engine.forget_prefixes();
  EXPECT_EQ(engine.pool().free_pages(), engine.pool().pages());
}

TEST(Engine, DeadlinesGoByTheGivenClock) {
  const auto model = tiny_model(tiny_config());
  double now = 100;
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 1, .clock = [&] { return now; }});
  std::vector<Result> results(3);
  const double seconds[] = {10, 4, 0};
  for (size_t i = 0; i < 3; i++) {
    Request request = request_of(3, 1, 30);
    request.seconds = seconds[i];
    engine.submit(request, {.on_finish = [&, i](const Result& r) { results[i] = r; }});
  }
  for (now = 103; engine.find(0)->drawn() < 2;) engine.step();
  EXPECT_EQ(engine.find(0)->first_token_s, 3);
  now = 104;
  engine.step();
  EXPECT_EQ(results[1].finish, Finish::kDeadline) << "it waited for its whole time";
  EXPECT_EQ(results[1].drawn(), 0);
  now = 109.5;
  engine.step();
  EXPECT_NE(engine.find(0), nullptr);
  now = 110;
  engine.step();
  EXPECT_EQ(results[0].finish, Finish::kDeadline);
  EXPECT_EQ(results[0].drawn(), 4);
  EXPECT_EQ(results[0].seconds, 10);
  engine.run();
  EXPECT_EQ(results[2].finish, Finish::kMaxTokens);
}

TEST(Engine, RequestsMaySubmitOthers) {
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 1, .queue = 1});
  int64_t ended = 0;
  Listener again;
  again.on_finish = [&](const Result&) {
    if (++ended == 4) return;
    EXPECT_TRUE(engine.submit(request_of(3, 1, 2), again).has_value());
  };
  engine.submit(request_of(3, 1, 2), again);
  engine.run();
  EXPECT_EQ(ended, 4);
}

TEST(Engine, EmptyPromptStartsWithTheStartToken) {
  EXPECT_EQ(prompt_tokens(Tokenizer::bytes(), ""), std::vector<int32_t>{256});
  EXPECT_EQ(prompt_tokens(Tokenizer::bytes(), "ab"), (std::vector<int32_t>{'a', 'b'}));
  const auto model = tiny_model(tiny_config());
  Request request{.prompt = prompt_tokens(Tokenizer::bytes(), ""), .max_tokens = 4};
  EXPECT_EQ(generate(*model, request).drawn(), 4);
}

TEST(Engine, ModelWithoutACausalRuleIsRefusedBeforeWork) {
  const auto model = tiny_model(tiny_config({"none", Router::kLearned, Causal::kNone}));
  const std::string message = message_of([&] { Engine(*model, Tokenizer::bytes(), {}); });
  EXPECT_NE(message.find("causal = none"), std::string::npos) << message;
}

TEST(Engine, BadRequestsAreRefusedWithTheNumbers) {
  const auto model = tiny_model(tiny_config(kRules[0], 24));
  Engine engine(*model, Tokenizer::bytes(), {.kv_bytes = 20 * 4096});
  const auto refusal = [&](Request request) { return message_of([&] { engine.submit(std::move(request)); }); };
  EXPECT_NE(refusal(request_of(25, 1)).find("25 tokens, the model's context 24"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {300}}).find("token 300 is outside the model's vocabulary of 257"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {-1}}).find("token -1"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {}}).find("has no token"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .max_tokens = 0}).find("max_tokens"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .stop = {""}}).find("stop string"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .sampling = {.temperature = -1}}).find("temperature"), std::string::npos);
  EXPECT_NE(refusal({.prompt = {1}, .seconds = -1}).find("seconds"), std::string::npos);
  EXPECT_TRUE(engine.idle()) << "a refused request left its mark";
  engine.submit(request_of(3, 1, 2));
  EXPECT_NE(message_of([&] { engine.rollback(0, 1); }).find("which drew 0"), std::string::npos);
  EXPECT_NE(message_of([&] { engine.rollback(7, 1); }).find("request 7"), std::string::npos);
  engine.run();
  EXPECT_NE(message_of([&] { engine.rollback(0, 1); }).find("request 0"), std::string::npos);
}

TEST(Engine, RequestThatTheWholeMemoryCouldNotHoldIsRefused) {
  const auto model = tiny_model(tiny_config());
  const int64_t page = 2 * 16 * 20 * 4 + 64;
  Engine engine(*model, Tokenizer::bytes(), {.kv_bytes = 11 * page});  // two pages a layer, 32 tokens
  EXPECT_TRUE(engine.submit(request_of(8, 1, 25)).has_value()) << "the last token drawn is not read";
  const std::string message = message_of([&] { engine.submit(request_of(8, 1, 26)); });
  EXPECT_NE(message.find("33 tokens may need 12 pages"), std::string::npos) << message;
  EXPECT_NE(message.find("has 11"), std::string::npos) << message;
  engine.run();
}

TEST(Engine, DamagedWeightsStopWithBlockOrTokenNamed) {
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {});
  const Request request = request_of(3, 1, 2);
  model->weights.weights().embed.row(request.prompt[0])[0] = std::numeric_limits<float>::quiet_NaN();
  engine.submit(request);
  EXPECT_NE(message_of([&] { engine.run(); }).find("block 1"), std::string::npos);
}

}  // namespace
}  // namespace isobath
