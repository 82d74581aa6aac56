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
                        .sequence_id = 3 * b});
  return requests;
}

struct Case {
  Rule rule;
  int64_t B, max_rows;
};
class CachedEqualsUncached : public ::testing::TestWithParam<Case> {};

TEST_P(CachedEqualsUncached, EveryLayersChoiceAndEveryTokensLogits) {
  const Case& p = GetParam();
  const auto model = tiny_model(tiny_config(p.rule));
  Engine engine(*model, Tokenizer::bytes(), {.sequences = p.B, .max_rows = p.max_rows});
  const auto requests = ragged_requests(p.B);
  const std::vector<Traced> traces = run_traced(engine, requests);
  for (size_t b = 0; b < requests.size(); b++) expect_equals_uncached(*model, traces[b], 0, requests[b].sequence_id);
  for (size_t l = 0; l < size_t(model->config().sections()); l++) {
    if (!model->config().section(int64_t(l)).routed) continue;
    // The test means something only if both choices happen.
    EXPECT_GT(engine.statistics().share_run(l), 0.05);
    EXPECT_LT(engine.statistics().share_run(l), 0.95);
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
  Engine together(*model, Tokenizer::bytes(), {.sequences = 4, .max_rows = 7});
  const std::vector<Traced> batch = run_traced(together, requests);
  if (GetParam().router != Router::kFirst && model->config().section(1).attention()) {
    EXPECT_NE(batch[0].cached[1], batch[2].cached[1]);
  }
  Engine alone(*model, Tokenizer::bytes(), {});
  for (size_t b = 0; b < requests.size(); b++)
    expect_same_answer(batch[b], run_traced(alone, {&requests[b], 1})[0], "sequence " + std::to_string(b));
}

TEST_P(EveryRule, RollbackEqualsFreshGeneration) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(2, 14);
  Engine fresh(*model, Tokenizer::bytes(), {.sequences = 2});
  const std::vector<Traced> want = run_traced(fresh, requests);
  for (const int64_t dropped : {1, 3, 13}) {
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 2});
    Traced got[2];
    const int64_t id = submit_traced(engine, requests[0], got[0]);
    submit_traced(engine, requests[1], got[1]);
    while (engine.find(id)->drawn() < 13) engine.step();
    engine.rollback(id, dropped);
    EXPECT_EQ(engine.find(id)->drawn(), 13 - dropped);
    EXPECT_TRUE(want[0].result.text.starts_with(engine.find(id)->text));
    got[0].logits.resize(size_t(13 - dropped));  // what comes must replace these
    engine.run();
    for (size_t b = 0; b < 2; b++) expect_same_answer(got[b], want[b], std::to_string(dropped) + " dropped");
  }
}

TEST_P(EveryRule, DepthOfPlusInfinityRunsEveryBlock) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(2);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .depth = kInfinity});
  const std::vector<Traced> traces = run_traced(engine, requests);
  for (size_t b = 0; b < 2; b++) expect_equals_uncached(*model, traces[b], kInfinity, requests[b].sequence_id);
  for (size_t l = 0; l < size_t(model->config().sections()); l++) {
    EXPECT_EQ(engine.statistics().share_run(l), 1);
    EXPECT_EQ(engine.statistics().layer[l].kv_used_bytes, engine.statistics().layer[l].kv_dense_bytes);
  }
}

TEST_P(EveryRule, DepthOfMinusInfinityRunsNoRoutedBlockAndStaysFinite) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(2);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .depth = -kInfinity});
  for (size_t b = 0; const Traced& trace : run_traced(engine, requests)) {
    expect_equals_uncached(*model, trace, -kInfinity, requests[b++].sequence_id);
    for (const auto& logits : trace.logits)
      for (const float v : logits) ASSERT_TRUE(std::isfinite(v));
  }
  for (size_t l = 0; l < size_t(model->config().sections()); l++) {
    if (!model->config().section(int64_t(l)).routed) continue;
    EXPECT_EQ(engine.statistics().share_run(l), 0);
    const bool all_keys = model->config().keeps_all_keys(model->config().section(int64_t(l)));
    EXPECT_EQ(engine.statistics().layer[l].kv_held_bytes == 0, !all_keys);
  }
  EXPECT_EQ(engine.statistics().share_run(0), 1);
}

TEST_P(EveryRule, RequestsAfterOthersEqualRequestsToAFreshEngine) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const auto requests = ragged_requests(4);
  Engine used(*model, Tokenizer::bytes(), {.sequences = 2}), fresh(*model, Tokenizer::bytes(), {.sequences = 2});
  run_traced(used, {&requests[2], 2});
  const std::vector<Traced> second = run_traced(used, {&requests[0], 2});
  const std::vector<Traced> first = run_traced(fresh, {&requests[0], 2});
  for (size_t b = 0; b < 2; b++) expect_same_answer(second[b], first[b], "sequence " + std::to_string(b));
}

TEST(Engine, ThreadsDoNotChangeBits) {
  const auto model = tiny_model(tiny_config());
  const auto requests = ragged_requests(3);
  std::vector<Traced> traces[2];
  const int threads = thread_count();
  for (const int n : {1, 2}) {
    set_thread_count(n);
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 3});
    traces[n - 1] = run_traced(engine, requests);
  }
  set_thread_count(threads);
  for (size_t b = 0; b < 3; b++) expect_same_answer(traces[1][b], traces[0][b], "sequence " + std::to_string(b));
}

TEST(Engine, MemoryOfARoutedLayerFollowsItsTokens) {
  const auto model = tiny_model(tiny_config(kRules[0], 1200));
  Engine engine(*model, Tokenizer::bytes(), {.max_rows = 128, .depth = -1.0f});
  run_all(engine, {{.prompt = random_prompt(1000, 5), .max_tokens = 1}});
  const Statistics& s = engine.statistics();
  for (const size_t l : {1u, 3u}) {
    ASSERT_GT(s.layer[l].rows, 0);
    EXPECT_EQ(s.layer[l].kv_used_bytes, s.layer[l].rows * engine.kv_row_bytes());
    EXPECT_LT(s.share_run(l), 0.4);
    EXPECT_LE(s.layer[l].kv_held_bytes, s.layer[l].kv_used_bytes * 17 / 16 + engine.pool().memory().page_bytes());
  }
  EXPECT_EQ(s.layer[0].kv_used_bytes, s.layer[0].kv_dense_bytes);
}

// Caches in bf16 differ from fp32 by rounding, and not from themselves.
TEST(Engine, CachesInBf16AreNearAndTheSameInAnyBatch) {
  const auto model = tiny_model(tiny_config(kRules[6]));  // chooses by position: no rounding can change a choice
  const auto requests = ragged_requests(3);
  Engine exact(*model, Tokenizer::bytes(), {.sequences = 3});
  Engine together(*model, Tokenizer::bytes(), {.sequences = 3, .max_rows = 4, .kv = Storage::kBf16});
  Engine alone(*model, Tokenizer::bytes(), {.kv = Storage::kBf16});
  const std::vector<Traced> want = run_traced(exact, requests), batch = run_traced(together, requests);
  EXPECT_LT(together.kv_row_bytes(), exact.kv_row_bytes());
  for (size_t b = 0; b < 3; b++) {
    expect_same_answer(batch[b], run_traced(alone, {&requests[b], 1})[0], "sequence " + std::to_string(b));
    bool same = true;
    for (size_t i = 0; i < 257; i++) {
      EXPECT_NEAR(batch[b].logits[0][i], want[b].logits[0][i], 0.05);
      same = same && batch[b].logits[0][i] == want[b].logits[0][i];
    }
    EXPECT_FALSE(same) << "nothing was rounded";
  }
}

}  // namespace
}  // namespace isobath
