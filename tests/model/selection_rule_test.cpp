// Rules of one's own: the example of docs/add-a-routing-rule.md, in a whole model.
#include "model/selection_rule.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>

#include "../../examples/routing_rule/spread.cpp"
#include "base/error.h"
#include "base/work.h"
#include "model/flops.h"
#include "support/compare.h"
#include "support/reference_gradient.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

void twice(std::span<int32_t> chosen, const ScoredRun&) { std::fill(chosen.begin(), chosen.end(), 0); }
void outside(std::span<int32_t> chosen, const ScoredRun& run) { chosen.back() = int32_t(run.score.size()); }

void add_rules() {
  static const bool once = [] {
    add_selection_rule("spread", spread);
    add_selection_rule("twice", twice);
    add_selection_rule("outside", outside);
    return true;
  }();
  static_cast<void>(once);
}

ModelConfig ruled(const char* rule, double capacity = 0.4) {
  add_rules();
  ModelConfig c = tiny_routed(capacity);
  c.routing.select = rule;
  return c;
}

TEST(SelectionRule, ChoosesTheRowsOfEveryRunAloneAndTogether) {
  const ModelConfig config = ruled("spread");
  const std::vector<Sequence> sequences = random_sequences({11, 1, 14}, config.vocab_size);
  TinyModel together(config, limits_for(sequences));
  const TinyBatch batch(sequences, together.config);
  together.forward(batch);
  const std::vector<int32_t> chosen = together.chosen(1);
  EXPECT_EQ(chosen.size(), size_t(4 + 1 + 5));
  size_t begin = 0, first = 0;
  for (const Sequence& s : sequences) {
    TinyModel alone(config, limits_for({s}));
    alone.forward(TinyBatch({s}, alone.config));
    for (const int32_t row : alone.chosen(1)) EXPECT_EQ(chosen[begin++], row + int32_t(first));
    expect_same_bits(alone.acts.x.data, together.acts.x.data + int64_t(first) * config.hidden_size,
                     s.rows() * config.hidden_size);
    first += size_t(s.rows());
  }
  TinyModel top_k(tiny_routed(), limits_for(sequences));
  top_k.forward(batch);
  EXPECT_NE(top_k.chosen(1), chosen);
}

// The router learns to imitate the rule: the targets of its cross-entropy are the rule's choice.
TEST(SelectionRule, IsWhatTheCausalRuleLearns) {
  const ModelConfig config = ruled("spread");
  const std::vector<Sequence> sequences = random_sequences({13}, config.vocab_size);
  TinyModel model(config, limits_for(sequences));
  model.step(TinyBatch(sequences, model.config));
  const std::vector<int32_t> chosen = model.chosen(1);
  const RouterActs& router = model.router(1);
  EXPECT_EQ(router.agreement.chosen, int64_t(chosen.size()));
  int64_t both = 0;
  for (const int32_t row : chosen) both += router.score[row] > 0;
  EXPECT_EQ(router.agreement.both, both);
}

// The rule in every place where a router chooses, learns or keeps what it read.
std::vector<TinyCase> ruled_cases() {
  const std::vector<std::vector<int64_t>> ragged{{16}, {1}, {15}}, packed{{5, 7}, {3, 1, 8}};
  std::vector<TinyCase> cases;
  const auto add = [&](const char* name, const std::vector<std::vector<int64_t>>& documents,
                       const std::function<void(ModelConfig&)>& change) {
    ModelConfig c = ruled("spread");
    change(c);
    std::vector<Sequence> sequences;
    for (const auto& lengths : documents)
      sequences.push_back(random_sequence(int64_t(sequences.size()) + 7, lengths, c.vocab_size));
    cases.push_back({name, c, sequences});
  };
  add("Bce", ragged, [](auto& c) { c.routing.aux_weight = 0.7; });
  add("WithoutACausalRule", ragged, [](auto& c) { c.routing.causal = Causal::kNone; });
  add("PredictorTanh", ragged, [](auto& c) {
    c.routing.causal = Causal::kPredictor;
    c.routing.gate = Gate::kTanh;
  });
  add("RandomScores", ragged, [](auto& c) {
    c.routing.router = Router::kRandom;
    c.routing.causal = Causal::kNone;
  });
  add("StaggeredDocuments", packed, [](auto& c) {
    c.routing.topology = Topology::kStaggered;
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
    c.routing.router_bias = true;
  });
  add("EveryBlockNormedAllKeys", ragged, [](auto& c) {
    c.routing.every = 1;
    c.routing.router_input = RouterInput::kNormed;
    c.routing.cache = KeptKeys::kAll;
    c.routing.aux_weight = 0.7;
  });
  add("StagedExpertsThatChoose", ragged,
      [](auto& c) { c.experts = {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4, .aux_weight = 0.5}; });
  return cases;
}
class RuledStep : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(Spread, RuledStep, ::testing::ValuesIn(ruled_cases()), case_name);

TEST_P(RuledStep, HasTheGradientsOfTheReference) {
  TinyModel model(GetParam().config, limits_for(GetParam().sequences));
  const TinyBatch batch(GetParam().sequences, model.config);
  model.step(batch, {.step = 3});
  expect_reference_gradients(model, batch);
  // Not those of another choice.
  ModelConfig config = GetParam().config;
  config.routing.select = "top_k";
  TinyModel top_k(config, limits_for(GetParam().sequences));
  top_k.step(batch, {.step = 3});
  EXPECT_NE(top_k.gradients(), model.gradients());
}

TEST_P(RuledStep, MultipliesWhatThePlanSays) {
  TinyModel model(GetParam().config, limits_for(GetParam().sequences));
  const TinyBatch batch(GetParam().sequences, model.config);
  const int64_t before = executed_multiply_adds;
  model.step(batch);
  EXPECT_EQ(executed_multiply_adds - before, executed_count(model.config, model.acts, batch.view()).total());
}

TEST(SelectionRule, ThatIsWrongIsTold) {
  const std::vector<Sequence> sequences = random_sequences({9}, 23);
  const auto error = [&](const char* rule) -> std::string {
    TinyModel model(ruled(rule), limits_for(sequences));
    try {
      model.forward(TinyBatch(sequences, model.config));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("twice").find("chose row 0 of a run twice"), std::string::npos) << error("twice");
  EXPECT_NE(error("outside").find("of a run of 9 rows"), std::string::npos) << error("outside");
  EXPECT_THROW(add_selection_rule("spread", spread), Error);
  EXPECT_THROW(add_selection_rule("top_k", spread), Error);
  EXPECT_THROW(add_selection_rule("nothing", nullptr), Error);
}

TEST(SelectionRule, IsRefusedWhereItMakesNoSense) {
  const auto refused = [](const std::function<void(RoutingConfig&)>& change) {
    ModelConfig c = ruled("spread");
    change(c.routing);
    EXPECT_THROW(resolve(c, 16), Error);
  };
  refused([](auto& r) { r.select = "unheard of"; });
  refused([](auto& r) { r.causal = Causal::kThreshold; });
  refused([](auto& r) {
    r.router = Router::kFirst;
    r.causal = Causal::kNone;
  });
  refused([](auto& r) {
    r.choice = Choice::kToken;
    r.gate = Gate::kSigmoid;
    r.causal = Causal::kNone;
  });
}

TEST(SelectionRule, IsInTheConfigOfACheckpoint) {
  ModelConfig c = ruled("spread");
  resolve(c, 16);
  EXPECT_EQ(to_json(c)["mixture_of_depths"]["select"], "spread");
  EXPECT_EQ(config_from_json(to_json(c), "config.json").routing.select, "spread");
  EXPECT_FALSE(to_json(tiny_routed())["mixture_of_depths"].contains("select"));
}

// The page shows what is compiled here.
TEST(SelectionRule, StandsInTheDocumentation) {
  const auto text = [](const std::string& file) {
    std::ifstream in(std::string(ISOBATH_SOURCE_DIR) + "/" + file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string page = text("docs/add-a-routing-rule.md"), example = text("examples/routing_rule/spread.cpp");
  ASSERT_FALSE(example.empty());
  std::string block;  // as it is indented in the page
  for (size_t at = 0; at < example.size();) {
    const size_t end = example.find('\n', at);
    block += (end > at ? "    " : "") + example.substr(at, end + 1 - at);
    at = end + 1;
  }
  EXPECT_NE(page.find(block), std::string::npos) << "docs/add-a-routing-rule.md shows another text than the example";
}

}  // namespace
}  // namespace isobath
