// The rule of docs/add-a-routing-rule.md in generation: it chooses rows in training only, and the causal rule that
// imitates it goes the way of every other.
#include "../../examples/routing_rule/spread.cpp"
#include "base/error.h"
#include "generate/tiny_model.h"

namespace isobath {
namespace {

using namespace testing;

void by_spread(RoutingConfig& r) {
  static const bool added = (add_selection_rule("spread", spread), true);
  static_cast<void>(added);
  r.select = "spread";
}

constexpr Rule kSpreadRules[] = {
    {.name = "bce", .router = Router::kLearned, .causal = Causal::kBce, .change = by_spread},
    {.name = "predictor", .router = Router::kLearned, .causal = Causal::kPredictor, .change = by_spread},
    {.name = "staggered",
     .router = Router::kLearned,
     .causal = Causal::kBce,
     .topology = Topology::kStaggered,
     .change = by_spread},
    {.name = "all_keys",
     .router = Router::kLearned,
     .causal = Causal::kPredictor,
     .cache = KeptKeys::kAll,
     .change = by_spread},
};

class RuleOfOnesOwn : public ::testing::TestWithParam<Rule> {};
INSTANTIATE_TEST_SUITE_P(Spread, RuleOfOnesOwn, ::testing::ValuesIn(kSpreadRules),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(RuleOfOnesOwn, GeneratesWithCachesAsWithout) {
  const ModelConfig config = tiny_config(GetParam());
  ASSERT_EQ(config.routing.select, "spread");
  const auto model = tiny_model(config);
  const std::vector<Request> requests = drawn_requests(3);
  for (const int64_t B : {1, 3})
    for (const int64_t max_rows : {1, 5, 512}) {
      Engine engine(*model, Tokenizer::bytes(), {.sequences = B, .max_rows = max_rows});
      const std::vector<Traced> traces = run_traced(engine, requests);
      for (size_t b = 0; b < requests.size(); b++)
        expect_equals_uncached(*model, traces[b], 0, requests[b].sequence_id);
      for (size_t l = 0; l < size_t(config.sections()); l++) {
        if (!config.section(int64_t(l)).routed) continue;
        EXPECT_GT(engine.statistics().share_run(l), 0.05);  // else nothing was compared
        EXPECT_LT(engine.statistics().share_run(l), 0.95);
      }
    }
}

TEST_P(RuleOfOnesOwn, LeavesTheCausalRuleAlone) {
  ModelConfig config = tiny_config(GetParam());
  const auto ruled = tiny_model(config);
  config.routing.select = "top_k";
  const auto by_top_k = tiny_model(config);
  const std::vector<Request> requests = drawn_requests(2);
  Engine a(*ruled, Tokenizer::bytes(), {.sequences = 2}), b(*by_top_k, Tokenizer::bytes(), {.sequences = 2});
  const std::vector<Traced> got = run_traced(a, requests), want = run_traced(b, requests);
  for (size_t i = 0; i < requests.size(); i++) expect_same_answer(got[i], want[i], "request " + std::to_string(i));
}

}  // namespace
}  // namespace isobath
