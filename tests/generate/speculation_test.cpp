// Drafts change when tokens are drawn, and nothing else: greedy answers, caches and beginnings that are kept have the
// bits of an engine without drafts; drawn answers have its distribution, and are functions of the request.
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "generate/tiny_model.h"
#include "support/refusal.h"

namespace isobath {
namespace {

using namespace testing;

constexpr int64_t kPage = 2 * 16 * 20 * 4 + 64;  // bytes of the tiny model's pages

Request request_of(int64_t prompt, uint64_t seed, int64_t max_tokens, double temperature = 0) {
  return {.prompt = random_prompt(prompt, seed),
          .max_tokens = max_tokens,
          .stop_at_eos = false,
          .sampling = {.temperature = temperature, .seed = seed},
          .sequence_id = int64_t(seed) % 3};
}

// Alone, in an engine of its own.
Traced alone(Model& model, const Request& request, int64_t speculate, float draft_depth) {
  Engine engine(model, Tokenizer::bytes(), {.prefixes = 0, .speculate = speculate, .draft_depth = draft_depth});
  return run_traced(engine, {&request, 1})[0];
}
Traced plain(Model& model, Request request) {
  request.speculate = {};
  return alone(model, request, 0, -1);
}

void expect_no_page_lost(Engine& engine) {
  engine.forget_prefixes();
  EXPECT_EQ(engine.pool().free_pages(), engine.pool().pages());
}

class Speculating : public ::testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Rules, Speculating, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

// Prompts in pieces, sequences without drafts and with few or many, all in the same steps.
TEST_P(Speculating, GreedyAnswersHaveTheBitsOfThoseWithoutDrafts) {
  const auto model = tiny_model(tiny_config(GetParam()));
  std::vector<Request> requests;
  std::vector<Traced> want;
  for (uint64_t i = 0; i < 6; i++) {
    requests.push_back(request_of(1 + int64_t(i) * 8, i, 25));
    want.push_back(plain(*model, requests.back()));
    if (i % 4 != 3) requests.back().speculate = i % 4;  // three others take the engine's
  }
  Speculation all;
  for (const float draft_depth : {-std::numeric_limits<float>::infinity(), -0.3f})
    for (const int64_t max_rows : {7, 20, 512}) {
      Engine engine(*model, Tokenizer::bytes(),
                    {.sequences = 4, .max_rows = max_rows, .speculate = 5, .draft_depth = draft_depth});
      const std::vector<Traced> got = run_traced(engine, requests);
      for (size_t i = 0; i < got.size(); i++) expect_same_answer(got[i], want[i], "request " + std::to_string(i));
      all.drafted += engine.statistics().speculation.drafted;
      all.accepted += engine.statistics().speculation.accepted;
      expect_no_page_lost(engine);
    }
  // The test means something only if drafts stand and fall.
  EXPECT_GT(all.accepted_share(), 0.02);
  EXPECT_LT(all.accepted_share(), GetParam().router == Router::kFirst ? 1.01 : 0.98);
}

TEST_P(Speculating, DrawnAnswersDependOnTheRequestAlone) {
  const auto model = tiny_model(tiny_config(GetParam()));
  std::vector<Request> requests;
  std::vector<Traced> want;
  for (uint64_t i = 0; i < 5; i++) {
    requests.push_back(request_of(8 + int64_t(i) * 5, i, 40, 0.9));
    want.push_back(alone(*model, requests.back(), 3, -0.5f));
  }
  Engine little_memory(*model, Tokenizer::bytes(),
                       {.sequences = 5, .max_rows = 16, .kv_bytes = 24 * kPage, .speculate = 3, .draft_depth = -0.5f});
  Engine few_rows(*model, Tokenizer::bytes(), {.sequences = 5, .max_rows = 10, .speculate = 3, .draft_depth = -0.5f});
  for (Engine* engine : {&little_memory, &few_rows}) {
    const std::vector<Traced> got = run_traced(*engine, requests);
    for (size_t i = 0; i < got.size(); i++) expect_same_answer(got[i], want[i], "request " + std::to_string(i));
    expect_no_page_lost(*engine);
  }
  EXPECT_GT(little_memory.statistics().gave_way, 0) << "memory was not tight";
}

// What a draft or a rejected token wrote would show in the answer of a request that goes on from it.
TEST_P(Speculating, KeptBeginningsHaveNothingOfDrafts) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const Request first = request_of(20, 1, 40);
  Engine engine(*model, Tokenizer::bytes(), {.speculate = 4});
  const Traced answer = run_traced(engine, {&first, 1})[0];
  Request next = first;
  next.prompt = answer.result.tokens;
  next.max_tokens = 20;
  const Traced got = run_traced(engine, {&next, 1})[0];
  EXPECT_EQ(engine.statistics().shared_tokens, 59);
  expect_same_answer(got, plain(*model, next), "what goes on");
}

TEST_P(Speculating, RollbackOfGreedyRequestsEqualsFreshGeneration) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const Request request = request_of(11, 4, 30);
  const Traced want = plain(*model, request);
  Engine engine(*model, Tokenizer::bytes(), {.speculate = 3});
  Traced got;
  const int64_t id = submit_traced(engine, request, got);
  while (engine.find(id)->drawn() < 17) engine.step();
  const int64_t drawn = engine.find(id)->drawn();
  engine.rollback(id, 6);
  got.logits.resize(size_t(drawn - 6));
  engine.run();
  expect_same_answer(got, want, "rolled back");
}

// Whoever is routed by position alone is not routed behind the first positions: the draft is the model.
TEST(Speculating, DraftsOfTheSameModelAllStand) {
  const auto model = tiny_model(tiny_config(kRules[5]));
  for (const double temperature : {0.0, 1.0}) {
    const Request request = request_of(20, 1, 29, temperature);
    Engine engine(*model, Tokenizer::bytes(), {.speculate = 3});
    const Result result = run_all(engine, {request})[0];
    const Statistics& s = engine.statistics();
    EXPECT_EQ(result.drawn(), 29);
    EXPECT_EQ(s.passes, 1 + 28 / 4);
    EXPECT_EQ(s.draft_passes, 7 * 3);
    EXPECT_EQ(s.speculation.rounds, 7);
    EXPECT_EQ(s.speculation.accepted, 21);
    EXPECT_EQ(s.speculation.accepted_share(), 1);
    EXPECT_EQ(s.rejected_tokens, 0);
  }
}

TEST(Speculating, StatisticsCountWhatStoodAndWhatDidNot) {
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .speculate = 4});
  const std::vector<Result> results = run_all(engine, {request_of(5, 1, 30), request_of(9, 2, 40)});
  const Statistics& s = engine.statistics();
  EXPECT_EQ(s.prefill_tokens, 14);
  EXPECT_EQ(s.decode_tokens, 29 + 39) << "the last token of each is not read";
  EXPECT_EQ(s.drawn_tokens, 70);
  int64_t rounds = 0, drafted = 0, accepted = 0;
  for (const Result& r : results) {
    rounds += r.speculation.rounds;
    drafted += r.speculation.drafted;
    accepted += r.speculation.accepted;
    EXPECT_GE(r.drawn(), 1 + r.speculation.accepted);
  }
  EXPECT_EQ(s.speculation.rounds, rounds);
  EXPECT_EQ(s.speculation.drafted, drafted);
  EXPECT_EQ(s.speculation.accepted, accepted);
  EXPECT_GT(rounds, 0);
  EXPECT_EQ(s.rejected_tokens, drafted - accepted) << "nobody was cut short";
  EXPECT_EQ(s.speculation.mean_accepted(), double(accepted) / double(rounds));
  EXPECT_EQ(s.layer[0].rows, s.rows());
}

// Each of these ends inside a round: what had been accepted behind the end leaves no mark.
TEST(Speculating, EndsAreWhereTheyWereWithoutDrafts) {
  const auto model = tiny_model(tiny_config(kRules[5], 48));  // drafts all stand
  const Request request = request_of(10, 3, 30);
  const Traced whole = plain(*model, request);
  std::vector<Request> requests(5, request);
  requests[0].stop_tokens = {whole.result.tokens[10 + 12]};
  requests[1].stop = {whole.result.text.substr(whole.result.text.size() / 2, 4)};
  requests[2].max_tokens = 17;
  requests[3].max_tokens = 100;  // the context ends it
  requests[4].max_tokens = 2;
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 5, .speculate = 5});
  const std::vector<Traced> got = run_traced(engine, requests);
  for (size_t i = 0; i < got.size(); i++) {
    const Traced want = plain(*model, requests[i]);
    expect_same_answer(got[i], want, "request " + std::to_string(i));
    EXPECT_EQ(got[i].result.finish, want.result.finish);
  }
  EXPECT_GT(engine.statistics().rejected_tokens, 0) << "nothing ended inside a round";
  expect_no_page_lost(engine);
}

TEST(Speculating, CancelledInsideARoundItEndsWithTheTokenOfThatMoment) {
  const auto model = tiny_model(tiny_config(kRules[5]));
  const Request request = request_of(20, 1, 40);
  Engine engine(*model, Tokenizer::bytes(), {.speculate = 5});
  Result result;
  engine.submit(request, {.on_token =
                              [&](const Result& r, CF32) {
                                if (r.drawn() == 9) engine.cancel(0);
                              },
                          .on_finish = [&](const Result& r) { result = r; }});
  engine.run();
  EXPECT_EQ(result.finish, Finish::kCancelled);
  EXPECT_EQ(result.drawn(), 9);
  expect_no_page_lost(engine);
}

// The probability of every answer of four tokens, three kept per token, by the uncached evaluation.
std::map<std::vector<int32_t>, double> answers(Model& model, const Request& request) {
  std::map<std::vector<int32_t>, double> open{{request.prompt, 1}};
  for (int64_t i = 0; i < request.max_tokens; i++) {
    std::map<std::vector<int32_t>, double> longer;
    for (const auto& [tokens, probability] : open) {
      const Uncached all = evaluate_uncached(model, tokens);
      const float* row = all.logits.view().row(int64_t(tokens.size()) - 1);
      std::array<int32_t, 257> order;
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      double weight[3], total = 0;
      for (size_t i = 0; i < 3; i++)
        total += weight[i] = std::exp((double(row[order[i]]) - double(row[order[0]])) / request.sampling.temperature);
      for (size_t i = 0; i < 3; i++) {
        std::vector<int32_t> next = tokens;
        next.push_back(order[i]);
        longer[next] = probability * weight[i] / total;
      }
    }
    open = std::move(longer);
  }
  return open;
}

TEST(Speculating, DrawnAnswersFollowTheModelNotTheDraft) {
  const auto model = tiny_model(tiny_config());
  constexpr int64_t kRuns = 16000;
  Request request = request_of(12, 5, 4, 1.5);
  request.sampling.top_k = 3;
  request.sequence_id = 0;
  const auto expected = answers(*model, request);
  ASSERT_EQ(expected.size(), 81u);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 32, .queue = kRuns, .speculate = 2});
  std::map<std::vector<int32_t>, int64_t> count;
  for (int64_t run = 0; run < kRuns; run++) {
    request.sampling.seed = uint64_t(run);
    engine.submit(request, {.on_finish = [&](const Result& r) { count[r.tokens]++; }});
  }
  engine.run();
  double chi_square = 0;
  for (const auto& [tokens, probability] : expected) {
    const double mean = probability * double(kRuns);
    ASSERT_GT(mean, 5);
    chi_square += std::pow(double(count[tokens]) - mean, 2) / mean;
  }
  EXPECT_EQ(count.size(), 81u) << "an answer of filtered tokens";
  EXPECT_LT(chi_square, 124.8) << "the 0.999 quantile at 80 degrees of freedom";
  const double share = engine.statistics().speculation.accepted_share();
  EXPECT_GT(share, 0.1);
  EXPECT_LT(share, 0.9);
}

TEST(Speculating, WhereItMakesNoSenseItIsRefused) {
  const auto said = [](const ModelConfig& config, const EngineOptions& options) {
    const auto model = tiny_model(config);
    return refusal([&] { Engine(*model, Tokenizer::bytes(), options); });
  };
  ModelConfig dense = tiny_config();
  dense.routing = {};
  dense.routing.topology = Topology::kDense;
  EXPECT_NE(said(dense, {.speculate = 2}).find("none to skip (it is dense)"), std::string::npos);
  ModelConfig experts = dense;
  experts.experts.experts = 4;
  experts.experts.per_token = 2;
  resolve(experts, 96);
  EXPECT_NE(said(experts, {.speculate = 2}).find("its experts"), std::string::npos);
  const ModelConfig none = tiny_config({"none", Router::kLearned, Causal::kNone});
  EXPECT_NE(said(none, {.speculate = 2}).find("causal = none"), std::string::npos);
  EXPECT_NE(said(tiny_config(), {.speculate = -1}).find("speculate is -1"), std::string::npos);
  EXPECT_NE(said(tiny_config(), {.speculate = 65}).find("expected 0 (no drafts) to 64"), std::string::npos);
  EXPECT_NE(said(tiny_config(), {.speculate = 2, .draft_depth = 0}).find("draft_depth is 0"), std::string::npos);
  EXPECT_NE(said(tiny_config(), {.max_rows = 4, .speculate = 4}).find("max_rows of 5"), std::string::npos);
  const auto model = tiny_model(tiny_config());
  Engine engine(*model, Tokenizer::bytes(), {.speculate = 2});
  Request request = request_of(3, 1, 2);
  request.speculate = 3;
  EXPECT_NE(refusal([&] { engine.submit(request); }).find("wants 3 tokens"), std::string::npos);
  request.speculate = -1;
  EXPECT_NE(refusal([&] { engine.submit(request); }).find("speculate is -1"), std::string::npos);
}

}  // namespace
}  // namespace isobath
