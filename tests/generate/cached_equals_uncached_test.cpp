// Invariants 8 and 9: generation with caches is the uncached evaluation under the same causal rule, bit for bit.
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "generate/tiny_model.h"

namespace isobath {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Request> ragged_requests(int64_t B, int64_t max_tokens = 12) {
  std::vector<Request> requests;
  const int64_t lengths[] = {11, 1, 26, 3};
  for (int64_t b = 0; b < B; b++)
    requests.push_back({.prompt = random_prompt(lengths[b % 4], uint64_t(b + 1)),
                        .max_tokens = max_tokens + b,
                        .stop = {},
                        .stop_at_eos = false,
                        .sampling = {.temperature = 1, .seed = uint64_t(b + 10)},
                        .id = 3 * b});
  return requests;
}

std::vector<int64_t> ids_of(std::span<const Request> requests) {
  std::vector<int64_t> ids;
  for (const Request& r : requests) ids.push_back(r.id);
  return ids;
}

struct Case {
  Rule rule;
  int64_t B, max_rows;
};
class CachedEqualsUncached : public ::testing::TestWithParam<Case> {};

TEST_P(CachedEqualsUncached, EveryLayersChoiceAndEveryTokensLogits) {
  const Case& p = GetParam();
  const auto model = tiny_model(tiny_config(p.rule));
  Generator g(*model, Tokenizer::bytes(), {.sequences = p.B, .max_rows = p.max_rows});
  const auto requests = ragged_requests(p.B);
  g.begin(requests);
  Trace trace;
  run_traced(g, trace);
  expect_equals_uncached(*model, g, trace, 0, ids_of(requests));
  for (size_t l = 0; l < size_t(model->config().sections()); l++) {
    if (!model->config().section(int64_t(l)).routed) continue;
    // The test means something only if both choices happen.
    EXPECT_GT(g.statistics().share_run(l), 0.05);
    EXPECT_LT(g.statistics().share_run(l), 0.95);
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Rule& rule : kRules)
    for (const int64_t B : {1, 3})
      for (const int64_t max_rows : {1, 5, 512}) all.push_back({rule, B, max_rows});
  return all;
}
INSTANTIATE_TEST_SUITE_P(RulesBatchesChunks, CachedEqualsUncached, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.rule.name) + "_B" + std::to_string(info.param.B) + "_rows" +
         std::to_string(info.param.max_rows);
});

class EveryRule : public ::testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Rules, EveryRule, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(EveryRule, BatchWithDifferentPicksEqualsEachSequenceAlone) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(4);
  Generator together(*model, Tokenizer::bytes(), {.sequences = 4, .max_rows = 7});
  together.begin(requests);
  Trace batch;
  run_traced(together, batch);
  const auto picks = [&](int64_t b) { return cached_positions(together, model->config().sections(), b)[1]; };
  if (GetParam().router != Router::kFirst) {
    EXPECT_NE(picks(0), picks(2));
  }
  Generator alone(*model, Tokenizer::bytes(), {});
  for (size_t b = 0; b < requests.size(); b++) {
    alone.begin({&requests[b], 1});
    Trace single;
    run_traced(alone, single);
    EXPECT_EQ(single.results[0].tokens, batch.results[b].tokens) << "sequence " << b;
    for (size_t i = 0; i < single.logits[0].size(); i++)
      expect_same_logits(single.logits[0][i].data(), batch.logits[b][i].data(), 257, "token " + std::to_string(i));
    EXPECT_EQ(cached_positions(alone, model->config().sections(), 0),
              cached_positions(together, model->config().sections(), int64_t(b)));
  }
}

TEST_P(EveryRule, RollbackEqualsFreshGeneration) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(2, 14);
  Generator fresh(*model, Tokenizer::bytes(), {.sequences = 2});
  fresh.begin(requests);
  fresh.run();
  for (const int64_t dropped : {1, 3, 14}) {
    Generator g(*model, Tokenizer::bytes(), {.sequences = 2});
    g.begin(requests);
    g.run();
    g.rollback(0, dropped);
    EXPECT_EQ(g.result(0).drawn(), 14 - dropped);
    EXPECT_TRUE(fresh.result(0).text.starts_with(g.result(0).text));
    Trace trace;
    run_traced(g, trace);
    EXPECT_EQ(g.result(0).tokens, fresh.result(0).tokens) << dropped << " dropped";
    EXPECT_EQ(g.result(0).text, fresh.result(0).text);
    EXPECT_EQ(g.result(0).finish, Finish::kMaxTokens);
    for (int64_t b = 0; b < 2; b++)
      EXPECT_EQ(cached_positions(g, model->config().sections(), b),
                cached_positions(fresh, model->config().sections(), b));
    expect_same_logits(g.logits(0).data, trace.logits[0].back().data(), 257, "last");
    const Uncached want =
        evaluate_uncached(*model, {g.result(0).tokens.data(), g.result(0).tokens.size() - 1}, 0, requests[0].id);
    for (int64_t i = 0; i < dropped; i++)
      expect_same_logits(trace.logits[0][size_t(i)].data(),
                         want.logits.view().row(g.result(0).prompt_tokens - 1 + 14 - dropped + i), 257,
                         "after rollback");
  }
}

TEST_P(EveryRule, DepthOfPlusInfinityRunsEveryBlock) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(2);
  Generator g(*model, Tokenizer::bytes(), {.sequences = 2, .depth = kInfinity});
  g.begin(requests);
  Trace trace;
  run_traced(g, trace);
  expect_equals_uncached(*model, g, trace, kInfinity, ids_of(requests));
  for (size_t l = 0; l < 4; l++) {
    EXPECT_EQ(g.statistics().share_run(l), 1);
    EXPECT_EQ(g.statistics().layer[l].kv_used_bytes, g.statistics().layer[l].kv_dense_bytes);
  }
}

TEST_P(EveryRule, DepthOfMinusInfinityRunsNoRoutedBlockAndStaysFinite) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(2);
  Generator g(*model, Tokenizer::bytes(), {.sequences = 2, .depth = -kInfinity});
  g.begin(requests);
  Trace trace;
  run_traced(g, trace);
  expect_equals_uncached(*model, g, trace, -kInfinity, ids_of(requests));
  for (const auto& sequence : trace.logits)
    for (const auto& logits : sequence)
      for (const float v : logits) ASSERT_TRUE(std::isfinite(v));
  for (size_t l = 0; l < size_t(model->config().sections()); l++) {
    if (!model->config().section(int64_t(l)).routed) continue;
    EXPECT_EQ(g.statistics().share_run(l), 0);
    EXPECT_EQ(g.statistics().layer[l].kv_used_bytes, 0);
  }
  EXPECT_EQ(g.statistics().share_run(0), 1);
}

TEST_P(EveryRule, RequestAfterAnotherEqualsRequestToFreshGenerator) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(4);
  Generator used(*model, Tokenizer::bytes(), {.sequences = 2});
  used.begin({&requests[2], 2});
  used.run();
  used.begin({&requests[0], 2});
  for (int64_t l = 0; l < 4; l++)
    for (int64_t b = 0; b < 2; b++) EXPECT_EQ(used.cache().slot(l, b).length, 0);
  Trace second;
  run_traced(used, second);
  Generator fresh(*model, Tokenizer::bytes(), {.sequences = 2});
  fresh.begin({&requests[0], 2});
  Trace first;
  run_traced(fresh, first);
  for (size_t b = 0; b < 2; b++) {
    EXPECT_EQ(second.results[b].tokens, first.results[b].tokens);
    for (size_t i = 0; i < first.logits[b].size(); i++)
      expect_same_bits(second.logits[b][i].data(), first.logits[b][i].data(), 257, "logits");
  }
}

TEST(Generate, ThreadsDoNotChangeBits) {
  const auto model = tiny_model(tiny_config());
  const auto requests = ragged_requests(3);
  Trace trace[2];
  const int threads = thread_count();
  for (const int n : {1, 2}) {
    set_thread_count(n);
    Generator g(*model, Tokenizer::bytes(), {.sequences = 3});
    g.begin(requests);
    run_traced(g, trace[n - 1]);
  }
  set_thread_count(threads);
  for (size_t b = 0; b < 3; b++)
    for (size_t i = 0; i < trace[0].logits[b].size(); i++)
      expect_same_bits(trace[0].logits[b][i].data(), trace[1].logits[b][i].data(), 257, "logits");
}

TEST(Generate, MemoryOfARoutedLayerFollowsItsTokens) {
  const auto model = tiny_model(tiny_config(kRules[0], 1200));
  Generator g(*model, Tokenizer::bytes(), {.max_rows = 128, .depth = -1.0f});
  const std::vector<Request> request{{.prompt = random_prompt(1000, 5), .max_tokens = 1}};
  g.begin(request);
  g.run();
  const Statistics s = g.statistics();
  for (const size_t l : {1u, 3u}) {
    ASSERT_GT(s.layer[l].rows, 0);
    EXPECT_EQ(s.layer[l].kv_used_bytes, s.layer[l].rows * g.cache().row_bytes());
    EXPECT_LT(s.share_run(l), 0.4);
    EXPECT_LT(double(s.layer[l].kv_reserved_bytes), 0.8 * double(s.layer[l].kv_dense_bytes));
  }
  EXPECT_EQ(s.layer[0].kv_used_bytes, s.layer[0].kv_dense_bytes);
}

}  // namespace
}  // namespace isobath
