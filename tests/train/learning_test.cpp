// Runs that learn: every kind of model lowers its loss, routers end with sensible shares, and what must not matter to
// the language model does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

struct Kind {
  const char* name;
  Topology topology = Topology::kJoint;
  Gate gate = Gate::kRaw;
  Router router = Router::kLearned;
  Causal causal = Causal::kBce;
};
const Kind kKinds[] = {
    {.name = "Dense", .topology = Topology::kDense},
    {.name = "RawBce"},
    {.name = "RawNone", .causal = Causal::kNone},
    {.name = "RawPredictor", .causal = Causal::kPredictor},
    {.name = "RawThreshold", .causal = Causal::kThreshold},
    {.name = "SigmoidBce", .gate = Gate::kSigmoid},
    {.name = "SigmoidNone", .gate = Gate::kSigmoid, .causal = Causal::kNone},
    {.name = "SigmoidPredictor", .gate = Gate::kSigmoid, .causal = Causal::kPredictor},
    {.name = "TanhBce", .gate = Gate::kTanh},
    {.name = "TanhNone", .gate = Gate::kTanh, .causal = Causal::kNone},
    {.name = "TanhPredictor", .gate = Gate::kTanh, .causal = Causal::kPredictor},
    {.name = "RandomRouter", .router = Router::kRandom, .causal = Causal::kNone},
    {.name = "FirstRouter", .router = Router::kFirst, .causal = Causal::kNone},
    {.name = "SpacedRouter", .router = Router::kSpaced, .causal = Causal::kNone},
};

RunConfig config_of(const Kind& k, const TempDir& dir, int sentences) {
  RunConfig c = tiny_run(dir, sentences);
  c.model.routing.topology = k.topology;
  c.model.routing.gate = k.gate;
  c.model.routing.router = k.router;
  c.model.routing.causal = k.causal;
  return c;
}

class Learning : public ::testing::TestWithParam<Kind> {};

// A text of about four sequences, seen thirty times.
TEST_P(Learning, lowers_the_loss_on_a_text_seen_again_and_again) {
  const TempDir dir;
  RunConfig c = config_of(GetParam(), dir, 4);
  c.train.steps = 60;
  const auto trainer = trainer_of(c);
  const double first = trainer->step().loss;
  const std::vector<float> before = values_of(trainer->model().weights);
  while (trainer->steps_done() < 60) trainer->step();
  const StepRecord last = trainer->step();
  EXPECT_NEAR(first, std::log(257.0), 1);  // nothing is known at first
  EXPECT_LT(last.loss, 0.4 * first);
  const std::vector<float> after = values_of(trainer->model().weights);
  for (size_t i = 0; i < after.size(); i++) ASSERT_TRUE(std::isfinite(after[i]));
  EXPECT_NE(before, after);
  for (const LayerRouting& layer : last.layer) EXPECT_EQ(layer.routed, 4 * 6);  // k = 0.25 * 24 per sequence
}

INSTANTIATE_TEST_SUITE_P(All, Learning, ::testing::ValuesIn(kKinds), [](const auto& info) { return info.param.name; });

class Predictor : public ::testing::TestWithParam<Topology> {};
INSTANTIATE_TEST_SUITE_P(Topologies, Predictor,
                         ::testing::Values(Topology::kJoint, Topology::kStaggered, Topology::kAttention,
                                           Topology::kMlp),
                         [](const auto& info) { return name_of(info.param); });

// Invariant 11: the predictor looks on.
TEST_P(Predictor, leaves_the_bits_of_the_language_model_alone) {
  const TempDir dir;
  const auto trainer_with = [&](Causal causal) {
    RunConfig c = config_of({.name = "", .causal = causal}, dir, 60);
    c.model.routing.topology = GetParam();
    return trainer_of(c);
  };
  const auto with = trainer_with(Causal::kPredictor), without = trainer_with(Causal::kNone),
             apart = trainer_with(Causal::kBce);
  for (int i = 0; i < 8; i++) {
    EXPECT_EQ(with->step().loss, without->step().loss);
    apart->step();
  }
  const WeightSet& a = with->model().weights;
  const WeightSet& b = without->model().weights;
  size_t j = 0, predictors = 0;
  bool bce_differs = false;
  for (size_t i = 0; i < a.list().size(); i++) {
    if (is_predictor(a.list()[i].kind)) {
      predictors++;
      continue;
    }
    ASSERT_EQ(a.list()[i].name, b.list()[j].name);
    for (int64_t n = 0; n < a.at(i).numel(); n++) {
      ASSERT_EQ(a.at(i)[n], b.at(j)[n]) << a.list()[i].name;
      bce_differs |= a.at(i)[n] != apart->model().weights.at(j)[n];
    }
    j++;
  }
  EXPECT_EQ(j, b.list().size());
  EXPECT_EQ(predictors, GetParam() == Topology::kStaggered ? 16u : 8u);
  EXPECT_TRUE(bce_differs);  // and the auxiliary loss of bce does not look on
}

class Shares : public ::testing::TestWithParam<Causal> {};

// Invariant 10: the causal rule routes about as many rows as top-k did.
TEST_P(Shares, lie_near_the_capacity_after_500_steps) {
  const TempDir dir;
  RunConfig c = tiny_run(dir, 600);
  c.model.routing.capacity = {0.125};
  c.model.routing.causal = GetParam();
  c.data.context = 32;
  c.data.batch = 4;
  c.train.steps = 500;
  const Watched run = run_and_watch(c);
  ASSERT_TRUE(run.result.final_eval->causal);
  ASSERT_EQ(run.result.final_eval->causal->layer.size(), 2u);
  for (const LayerRouting& layer : run.result.final_eval->causal->layer) {
    EXPECT_GE(layer.share(), 0.125 / 3) << layer.section.name();
    EXPECT_LE(layer.share(), 0.125 * 3) << layer.section.name();
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, Shares, ::testing::Values(Causal::kBce, Causal::kPredictor, Causal::kThreshold),
                         [](const auto& info) { return name_of(info.param); });

// One step, whatever its micro-batches: the same threshold, and frozen while the model is evaluated.
TEST(Threshold, moves_once_per_optimizer_step) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  c.model.routing.causal = Causal::kThreshold;
  c.data.batch = 8;
  std::vector<float> after[2];
  for (const int64_t micro : {8, 4}) {
    c.data.micro_batch = micro;
    const auto trainer = trainer_of(c);
    trainer->step();
    std::vector<float>& t = after[micro == 4];
    for (const SectionWeights& b : trainer->model().weights.weights().section)
      if (!b.router.threshold.empty()) t.push_back(b.router.threshold[0]);
    trainer->evaluate({});
    EXPECT_EQ(trainer->model().weights.weights().section[1].router.threshold[0], t[0]);
  }
  ASSERT_EQ(after[0].size(), 2u);
  EXPECT_NE(after[0][0], 0);
  EXPECT_EQ(after[0], after[1]);
}

}  // namespace
}  // namespace isobath
