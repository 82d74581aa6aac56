// Generation from mixtures of experts: with caches and in batches it is the uncached evaluation under the same causal
// rules, bit for bit.
#include "generate/caches.h"
#include "generate/tiny_experts.h"
#include "train/calibrate.h"

namespace isobath {
namespace {

using namespace testing;

std::vector<Request> requests_of(int64_t B) {
  std::vector<Request> requests;
  const int64_t lengths[] = {11, 1, 26};
  for (int64_t b = 0; b < B; b++)
    requests.push_back({.prompt = random_prompt(lengths[b], uint64_t(b + 1)),
                        .max_tokens = 10 + b,
                        .stop = {},
                        .stop_at_eos = false,
                        .sampling = {.temperature = 1, .seed = uint64_t(b + 10)}});
  return requests;
}

class ExpertGeneration : public ::testing::TestWithParam<ExpertVariant> {};
INSTANTIATE_TEST_SUITE_P(Variants, ExpertGeneration, ::testing::ValuesIn(kExpertVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExpertGeneration, EqualsTheUncachedEvaluation) {
  const auto model = tiny_model(tiny_config(GetParam()));
  if (!generates(GetParam())) {
    EXPECT_THROW(Engine(*model, Tokenizer::bytes(), {}), Error);
    return;
  }
  const auto requests = requests_of(3);
  for (const float depth : {0.0f, 0.7f})
    for (const int64_t max_rows : {5, 512}) {
      Engine engine(*model, Tokenizer::bytes(), {.sequences = 3, .max_rows = max_rows, .depth = depth});
      for (const Traced& trace : run_traced(engine, requests)) expect_equals_uncached(*model, trace, depth);
    }
}

TEST_P(ExpertGeneration, GreedyWithDraftsEqualsWithoutThem) {
  const auto model = tiny_model(tiny_config(GetParam()));
  const EngineOptions drafting{.sequences = 3, .max_rows = 12, .speculate = 3};
  if (!GetParam().staged) {
    EXPECT_THROW(Engine(*model, Tokenizer::bytes(), drafting), Error);
    return;
  }
  auto requests = requests_of(3);
  for (Request& request : requests) request.sampling.temperature = 0;
  Engine with(*model, Tokenizer::bytes(), drafting), without(*model, Tokenizer::bytes(), {.sequences = 3});
  const std::vector<Traced> got = run_traced(with, requests), want = run_traced(without, requests);
  for (size_t b = 0; b < requests.size(); b++) expect_same_answer(got[b], want[b], "sequence " + std::to_string(b));
  EXPECT_GT(with.statistics().speculation.rounds, 0);
}

// Rules that take far from what they should, until they are calibrated on a text.
TEST(CalibratedExperts, GenerateAsTheUncachedEvaluation) {
  for (const bool staged : {false, true}) {
    ModelConfig config =
        tiny_config({"", {.experts = 4, .choice = Choice::kExpert, .capacity = 0.2, .offset = true}, staged});
    config.routing.router_offset = staged;
    const auto model = tiny_model(config);
    const std::vector<std::vector<int32_t>> text{random_prompt(600, 5)};
    Evaluator evaluator(model->config(), stream_of(text, 0), {.T = 60, .B = 2});
    model->prepare(evaluator.rows());
    const Calibration c =
        calibrate(*model, evaluator,
                  {.routed = std::vector<double>(size_t(config.routers()), 0.5), .experts = {0.2, 0.2, 0.2, 0.2}});
    for (const CalibratedExperts& block : c.experts)
      for (size_t e = 0; e < 4; e++) EXPECT_NEAR(block.after.share(e), 0.2, 0.01);
    const auto requests = requests_of(3);
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 3, .max_rows = 7});
    for (const Traced& trace : run_traced(engine, requests)) expect_equals_uncached(*model, trace, 0);
  }
}

TEST(NoOps, AreCounted) {
  const auto model = tiny_model(tiny_config({"Integrated", {.experts = 3, .per_token = 1, .no_ops = 1}}));
  const auto requests = requests_of(3);
  for (const float depth : {-kInfinity, 0.0f, kInfinity}) {
    Engine engine(*model, Tokenizer::bytes(), {.sequences = 3, .depth = depth});
    run_traced(engine, requests);
    for (size_t l = 0; l < 4; l++) {
      const double share = engine.statistics().no_op_share(l);
      if (depth == 0) {
        EXPECT_GT(share, 0.02);
        EXPECT_LT(share, 0.98);
      } else {
        EXPECT_EQ(share, depth < 0 ? 1 : 0);
      }
    }
  }
}

class ExpertCaches : public ::testing::TestWithParam<ExpertVariant> {};
INSTANTIATE_TEST_SUITE_P(Variants, ExpertCaches, ::testing::ValuesIn(variants_that_generate()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExpertCaches, BatchEqualsEachSequenceAlone) { expect_batch_equals_each_alone(tiny_config(GetParam())); }
TEST_P(ExpertCaches, RollbackEqualsFreshGeneration) {
  expect_rollback_equals_fresh_generation(tiny_config(GetParam()));
}
TEST_P(ExpertCaches, DepthOfPlusInfinityRunsEveryBlock) {
  expect_depth_of_plus_infinity_runs_every_block(tiny_config(GetParam()));
}
TEST_P(ExpertCaches, DepthOfMinusInfinityRunsNoRoutedBlockAndStaysFinite) {
  expect_depth_of_minus_infinity_runs_no_routed_block_and_stays_finite(tiny_config(GetParam()));
}
TEST_P(ExpertCaches, RequestsAfterOthersEqualRequestsToAFreshEngine) {
  expect_requests_after_others_equal_those_to_a_fresh_engine(tiny_config(GetParam()));
}
TEST_P(ExpertCaches, EntriesAreTheRowsThatWentThrough) {
  expect_entries_are_the_rows_that_went_through(tiny_config(GetParam()));
}

// With a depth of minus infinity experts that choose take no row: they are as good as not there.
TEST_P(ExpertCaches, DepthOfMinusInfinityRunsNoExpertThatChooses) {
  const ModelConfig config = tiny_config(GetParam());
  if (!config.experts_choose()) return;
  const auto model = tiny_model(config), silent = tiny_model(config);
  for (size_t i = 0; i < silent->weights.list().size(); i++)
    if (silent->weights.list()[i].name.ends_with("w2.weight"))
      std::fill_n(silent->weights.at(i).data, silent->weights.at(i).numel(), 0.0f);
  const auto requests = ragged_requests(2);
  std::vector<Traced> traces[2];
  for (Model* m : {model.get(), silent.get()}) {
    Engine engine(*m, Tokenizer::bytes(), {.sequences = 2, .depth = -kInfinity});
    traces[m == silent.get()] = run_traced(engine, requests);
  }
  for (size_t b = 0; b < 2; b++) expect_same_answer(traces[0][b], traces[1][b], "sequence " + std::to_string(b));
}

}  // namespace
}  // namespace isobath
