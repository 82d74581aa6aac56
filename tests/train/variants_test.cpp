// Every way of routing learns: topology x gate x causal rule x {one MLP, experts}, 20 steps on one repeated batch of a
// tiny model. And shares are what was configured.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/select.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

struct Rule {
  const char* name;
  void (*set)(RoutingConfig&);
};
constexpr Rule kRules[] = {
    {"none", [](RoutingConfig& r) { r.causal = Causal::kNone; }},
    {"bce", [](RoutingConfig& r) { r.causal = Causal::kBce; }},
    {"predictor", [](RoutingConfig& r) { r.causal = Causal::kPredictor; }},
    {"threshold", [](RoutingConfig& r) { r.causal = Causal::kThreshold; }},
    {"token",
     [](RoutingConfig& r) {
       r.causal = Causal::kNone;
       r.choice = Choice::kToken;
     }},
    {"random",
     [](RoutingConfig& r) {
       r.causal = Causal::kNone;
       r.router = Router::kRandom;
     }},
    {"first",
     [](RoutingConfig& r) {
       r.causal = Causal::kNone;
       r.router = Router::kFirst;
     }},
    {"spaced",
     [](RoutingConfig& r) {
       r.causal = Causal::kNone;
       r.router = Router::kSpaced;
     }},
};

struct Variant {
  Topology topology;
  Gate gate;
  Rule rule;
  int64_t experts;
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (size_t t = size_t(Topology::kJoint); t < kNames<Topology>.size(); t++)
    for (size_t g = 0; g < kNames<Gate>.size(); g++)
      for (const Rule& rule : kRules)
        for (const int64_t experts : {0, 3}) all.push_back({Topology(t), Gate(g), rule, experts});
  return all;
}

// What choice = token and the controls without scores say of gates: the product of all has no other senseless members.
bool makes_sense(const RoutingConfig& r) {
  if (r.choice == Choice::kToken) return r.gate == Gate::kSigmoid;
  return r.gate == Gate::kRaw || r.router == Router::kLearned || r.router == Router::kRandom;
}

class Variants : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(variants()), [](const auto& info) {
  return std::string(name_of(info.param.topology)) + "_" + name_of(info.param.gate) + "_" + info.param.rule.name +
         (info.param.experts > 0 ? "_experts" : "");
});

TEST_P(Variants, learn_or_are_refused) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  RoutingConfig& r = c.model.routing;
  r.topology = GetParam().topology;
  r.gate = GetParam().gate;
  GetParam().rule.set(r);
  c.model.experts.experts = GetParam().experts;
  // One batch of text: as many tokens as a step reads, and one more.
  const std::string text = synthetic_text(120).substr(0, size_t(c.data.batch * c.data.context + 1));
  c.data.path = dir.write("batch.txt", text).string();
  c.data.valid_path = dir.write("valid.txt", synthetic_text(20, 4)).string();
  c.train.steps = 20;
  c.train.learning_rate = 0.01;
  if (!makes_sense(r)) {
    EXPECT_THROW(trainer_of(c), Error);
    return;
  }
  const auto trainer = trainer_of(c);
  std::vector<double> loss;
  for (int step = 0; step < 20; step++) {
    const StepRecord& record = trainer->step();
    loss.push_back(record.loss);
    ASSERT_TRUE(std::isfinite(record.loss) && std::isfinite(record.norm.model)) << step;
    ASSERT_EQ(int64_t(record.layer.size()), c.model.routing.topology == Topology::kStaggered ? 4 : 2);
    for (const LayerRouting& layer : record.layer) {
      const int64_t k =
          r.router == Router::kSpaced ? spaced_rows(0.25, c.data.context) : capacity_rows(0.25, c.data.context);
      const int64_t most = c.data.batch * k;
      ASSERT_LE(layer.routed, most) << layer.section.name();
      ASSERT_TRUE(layer.routed == most || r.choice == Choice::kToken) << layer.section.name();
    }
  }
  const double last = std::accumulate(loss.end() - 5, loss.end(), 0.0) / 5;
  EXPECT_TRUE(last < loss[0] || r.router == Router::kRandom) << loss[0] << " to " << last;
}

}  // namespace
}  // namespace isobath
