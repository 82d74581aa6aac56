// Whatever the scheduler does with memory - sharing beginnings, letting requests give way, reading prompts in pieces -
// answers keep their bits, and no page is lost.
#include "generate/tiny_model.h"

namespace isobath {
namespace {

using namespace testing;

constexpr int64_t kPage = 2 * 16 * 20 * 4 + 64;  // bytes of the tiny model's pages

Request request_of(std::vector<int32_t> prompt, uint64_t seed, int64_t max_tokens) {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .stop_at_eos = false,
          .sampling = {.seed = seed},
          .sequence_id = int64_t(seed) % 2};
}

std::vector<Traced> alone(Model& model, const std::vector<Request>& requests, EngineOptions options = {}) {
  std::vector<Traced> all;
  options.prefixes = 0;
  for (const Request& request : requests) {
    Engine engine(model, Tokenizer::bytes(), options);
    all.push_back(run_traced(engine, {&request, 1})[0]);
  }
  return all;
}

void expect_answers(const std::vector<Traced>& got, const std::vector<Traced>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); i++) expect_same_answer(got[i], want[i], "request " + std::to_string(i));
}

void expect_no_page_lost(Engine& engine) {
  engine.forget_prefixes();
  EXPECT_EQ(engine.pool().free_pages(), engine.pool().pages());
}

class Scheduling : public ::testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Rules, Scheduling, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Scheduling, RequestsThatGaveWayAnswerAsIfTheyHadNot) {
  const auto model = tiny_model(tiny_config(GetParam()));
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 5; i++) requests.push_back(request_of(random_prompt(8 + int64_t(i) * 5, i), i + 1, 40));
  const std::vector<Traced> want = alone(*model, requests);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 5, .max_rows = 16, .kv_bytes = 22 * kPage});
  expect_answers(run_traced(engine, requests), want);
  EXPECT_GT(engine.statistics().gave_way, 0) << "memory was not tight";
  EXPECT_GT(engine.statistics().passes, 60);
  expect_no_page_lost(engine);
}

TEST_P(Scheduling, SharedBeginningsHaveTheBitsOfReading) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const std::vector<int32_t> prompt = random_prompt(50, 9);
  std::vector<int32_t> longer = prompt, other(prompt.begin(), prompt.begin() + 30);
  for (const int32_t t : random_prompt(9, 1)) longer.push_back(t), other.push_back(t);
  const std::vector<Request> requests{request_of(prompt, 1, 20), request_of(prompt, 3, 20), request_of(longer, 5, 20),
                                      request_of(other, 7, 20), request_of(prompt, 1, 3)};
  const std::vector<Traced> want = alone(*model, requests);
  for (const int64_t max_rows : {7, 512}) {
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .max_rows = max_rows});
    const std::vector<Traced> first = run_traced(engine, {&requests[0], 1});
    expect_answers(first, {want[0]});
    EXPECT_EQ(engine.statistics().shared_tokens, 0);
    expect_answers(run_traced(engine, {requests.data() + 1, 4}), {want.begin() + 1, want.end()});
    EXPECT_EQ(engine.statistics().shared_tokens, 49 + 50 + 30 + 49);
    expect_no_page_lost(engine);
  }
}

TEST_P(Scheduling, EqualPromptsThatArriveTogetherAreReadOnce) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const std::vector<int32_t> prompt = random_prompt(50, 9);
  std::vector<int32_t> longer = prompt;
  for (const int32_t t : random_prompt(9, 1)) longer.push_back(t);
  std::vector<Request> requests{request_of(prompt, 1, 9), request_of(random_prompt(20, 3), 3, 30),
                                request_of(prompt, 5, 9), request_of(longer, 7, 9), request_of(prompt, 9, 9)};
  const std::vector<Traced> want = alone(*model, requests);
  for (const int64_t max_rows : {12, 512}) {
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 5, .max_rows = max_rows});
    expect_answers(run_traced(engine, requests), want);
    EXPECT_EQ(engine.statistics().shared_tokens, 49 + 50 + 49);
    EXPECT_EQ(engine.statistics().rows(), 50 + 20 + 1 + 9 + 1 + 4 * 8 + 29) << "rows that are computed";
    expect_no_page_lost(engine);
  }
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 5, .prefixes = 0});  // nothing is kept: nobody waits
  for (const Request& request : requests) engine.submit(request);
  engine.step();
  EXPECT_EQ(engine.running(), 5);
}

TEST(Scheduling, NumbersOfARandomRouterAreNotShared) {
  const auto model = tiny_model(tiny_config(kRules[4]));
  Request request = request_of(random_prompt(40, 9), 1, 4);
  Engine engine(*model, Tokenizer::bytes(), {});
  run_all(engine, {request});
  request.sequence_id = 2;
  const Traced got = run_traced(engine, {&request, 1})[0];
  EXPECT_EQ(engine.statistics().shared_tokens, 0);
  expect_same_answer(got, alone(*model, {request})[0], "sequence 2");
}

TEST(Scheduling, KeptBeginningsGiveTheirPagesBackWhenTheyAreNeeded) {
  const auto model = tiny_model(tiny_config());
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 12; i++) requests.push_back(request_of(random_prompt(40, i), i, 10));
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .kv_bytes = 26 * kPage});
  expect_answers(run_traced(engine, requests), alone(*model, requests));
  EXPECT_LT(engine.pool().free_pages(), engine.pool().pages()) << "nothing is kept";
  expect_no_page_lost(engine);
}

// Every format of weights and of caches: shared beginnings, and requests that gave way.
TEST(Scheduling, SmallFormatsKeepTheirBitsToo) {
  const auto model = tiny_model(tiny_config());
  const std::vector<int32_t> prompt = random_prompt(30, 9);
  std::vector<Request> requests;
  for (uint64_t i = 0; i < 5; i++) {
    requests.push_back(request_of(prompt, i + 1, 40));
    for (const int32_t t : random_prompt(int64_t(i) * 3, i)) requests.back().prompt.push_back(t);
  }
  for (const WeightFormat weights : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8})
    for (const Storage kv : {Storage::kF32, Storage::kBf16}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(weights), name_of(kv)));
      EngineOptions options{.weights = weights, .kv = kv};
      const std::vector<Traced> want = alone(*model, requests, options);
      options.sequences = 5, options.max_rows = 16;
      options.kv_bytes = 26 * (kv == Storage::kF32 ? kPage : kPage - 2 * 16 * 20 * 2);
      Engine engine(*model, Tokenizer::bytes(), options);
      expect_answers(run_traced(engine, {&requests[0], 1}), {want[0]});
      expect_answers(run_traced(engine, {requests.data() + 1, 4}), {want.begin() + 1, want.end()});
      EXPECT_GT(engine.statistics().gave_way, 0) << "memory was not tight";
      EXPECT_GT(engine.statistics().shared_tokens, 0) << "nothing was shared";
      expect_no_page_lost(engine);
    }
}

TEST(Scheduling, WritersGoFirstAndPromptsFillThePass) {
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .max_rows = 8});
  const int64_t writer = *engine.submit(request_of(random_prompt(4, 1), 1, 30));
  engine.step();
  const int64_t reader = *engine.submit(request_of(random_prompt(50, 2), 2, 5));
  for (int64_t step = 1; step <= 8; step++) {  // 7 prompt rows a pass beside the writer's one
    engine.step();
    EXPECT_EQ(engine.find(writer)->drawn(), 1 + step);
    EXPECT_EQ(engine.find(reader)->drawn(), step < 8 ? 0 : 1);
  }
}

// With as much memory as one request may need, all must get through, the oldest first.
TEST(Scheduling, LeastMemoryServesEverybodyInTurn) {
  for (const Rule& rule : {kRules[0], kRules[6]}) {
    const auto model = tiny_model(tiny_config(rule));
    std::vector<Request> requests;
    for (uint64_t i = 0; i < 6; i++) requests.push_back(request_of(random_prompt(20, i), i, 29));
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 4, .max_rows = 64, .kv_bytes = 12 * kPage});
    expect_answers(run_traced(engine, requests), alone(*model, requests));
    expect_no_page_lost(engine);
  }
}

TEST(Scheduling, RollbackOfARequestThatWaitsAgain) {
  const auto model = tiny_model(tiny_config());
  const std::vector<Request> requests{request_of(random_prompt(20, 1), 1, 29), request_of(random_prompt(20, 2), 2, 29)};
  constexpr float kEverywhere = 1e30f;  // two pages in each layer for 20 tokens, a third one for the 33rd
  const std::vector<Traced> want = alone(*model, requests, {.depth = kEverywhere});
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .kv_bytes = 16 * kPage, .depth = kEverywhere});
  std::vector<Traced> got(2);
  for (size_t i = 0; i < 2; i++) submit_traced(engine, requests[i], got[i]);
  while (engine.statistics().gave_way == 0) ASSERT_TRUE(engine.step());
  ASSERT_EQ(engine.waiting(), 1);
  const int64_t drawn = engine.find(1)->drawn();
  ASSERT_GT(drawn, 4);
  engine.rollback(1, 4);
  got[1].logits.resize(size_t(drawn - 4));
  engine.run();
  expect_answers(got, want);
}

}  // namespace
}  // namespace isobath
