// Invariants 8 and 9: generation with caches is the uncached evaluation under the same causal rule, bit for bit.
#include "base/parallel.h"
#include "generate/caches.h"

namespace isobath {
namespace {

using namespace testing;

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

TEST_P(EveryRule, BatchEqualsEachSequenceAlone) { expect_batch_equals_each_alone(tiny_config(GetParam())); }

// Batches mean something only if their sequences differ in what they choose.
TEST_P(EveryRule, SequencesOfABatchChooseDifferently) {
  const auto model = tiny_model(tiny_config(GetParam()));
  if (GetParam().router == Router::kFirst || !model->config().section(1).attention()) return;
  const auto requests = ragged_requests(4);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 4, .max_rows = 7});
  const std::vector<Traced> batch = run_traced(engine, requests);
  EXPECT_NE(batch[0].cached[1], batch[2].cached[1]);
}

TEST_P(EveryRule, RollbackEqualsFreshGeneration) { expect_rollback_equals_fresh_generation(tiny_config(GetParam())); }
TEST_P(EveryRule, DepthOfPlusInfinityRunsEveryBlock) {
  expect_depth_of_plus_infinity_runs_every_block(tiny_config(GetParam()));
}
TEST_P(EveryRule, DepthOfMinusInfinityRunsNoRoutedBlockAndStaysFinite) {
  expect_depth_of_minus_infinity_runs_no_routed_block_and_stays_finite(tiny_config(GetParam()));
}
TEST_P(EveryRule, RequestsAfterOthersEqualRequestsToAFreshEngine) {
  expect_requests_after_others_equal_those_to_a_fresh_engine(tiny_config(GetParam()));
}
TEST_P(EveryRule, EntriesAreTheRowsThatWentThrough) {
  expect_entries_are_the_rows_that_went_through(tiny_config(GetParam()));
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
