// Every way of routing learns, 20 steps on one repeated batch of a tiny model, or is refused with the reason; and
// shares are what was configured.
//   topology x gate x rule x experts, all with all. A rule is a causal rule of a learned router, token choice, or a
//   control, and senseless ones beside them. Of topology = dense, where nothing of [routing] means anything, one gate.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <ostream>

#include "expert_shares.h"
#include "ops/select.h"
#include "support/refusal.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

struct Rule {
  const char* name;
  Causal causal = Causal::kNone;
  Router router = Router::kLearned;
  Choice choice = Choice::kExpert;
};
constexpr Rule kRules[] = {
    {"none"},
    {"bce", Causal::kBce},
    {"predictor", Causal::kPredictor},
    {"threshold", Causal::kThreshold},
    {"token", Causal::kNone, Router::kLearned, Choice::kToken},
    {"token_bce", Causal::kBce, Router::kLearned, Choice::kToken},
    {"random", Causal::kNone, Router::kRandom},
    {"random_bce", Causal::kBce, Router::kRandom},
    {"first", Causal::kNone, Router::kFirst},
    {"first_bce", Causal::kBce, Router::kFirst},
    {"spaced", Causal::kNone, Router::kSpaced},
    {"spaced_bce", Causal::kBce, Router::kSpaced},
};

struct Experts {
  const char* name;
  ExpertsConfig config;
};
const Experts kExperts[] = {
    {"one_mlp", {}},
    {"token_experts", {.experts = 3}},
    {"choosing_experts", {.experts = 3, .choice = Choice::kExpert}},
    {"integrated", {.experts = 3, .per_token = 1, .no_ops = 1}},
};

struct Variant {
  Topology topology;
  Gate gate;
  Rule rule;
  Experts experts;
};
std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (size_t t = 0; t < kNames<Topology>.size(); t++)
    for (size_t g = 0; g < (Topology(t) == Topology::kDense ? 1 : kNames<Gate>.size()); g++)
      for (const Rule& rule : kRules)
        for (const Experts& experts : kExperts) all.push_back({Topology(t), Gate(g), rule, experts});
  return all;
}

// How the message of a refusal names what does not go together; empty: the variant makes sense.
std::vector<std::string> faults(const ModelConfig& c) {
  const RoutingConfig& r = c.routing;
  std::vector<std::string> all;
  if (r.topology == Topology::kDense) return all;
  const std::string gate = std::string(" (found ") + name_of(r.gate) + ")";
  if (r.choice == Choice::kToken && r.gate != Gate::kSigmoid) all.push_back("set gate = sigmoid" + gate);
  const bool scores = r.router == Router::kLearned || r.router == Router::kRandom;
  if (!scores && r.gate != Gate::kRaw) all.push_back("set gate = raw" + gate);
  if ((r.router != Router::kLearned || r.choice == Choice::kToken) && r.causal != Causal::kNone)
    all.push_back(std::string("set causal = none (found ") + name_of(r.causal) + ")");
  if (c.experts.no_ops > 0)
    all.push_back("experts.no_ops = 1 (integrated) with topology = " + std::string(name_of(r.topology)));
  return all;
}

void expect_refused(const RunConfig& c, const std::vector<std::string>& faults) {
  const std::string message = refusal([&] { trainer_of(c); });
  bool told = false;
  for (const std::string& fault : faults) told = told || message.find(fault) != std::string::npos;
  EXPECT_TRUE(told) << "looked for: " << faults[0] << "\nin: " << message;
}

int64_t routers_of(Topology topology) {
  return topology == Topology::kDense ? 0 : topology == Topology::kStaggered ? 4 : 2;
}

// The rows that a routed section takes, of all of them, and what is left of them for the MLP of a block.
void expect_shares(const StepRecord& record, const ModelConfig& c, const DataOptions& data) {
  const RoutingConfig& r = c.routing;
  const int64_t B = data.batch, N = B * data.context;
  const int64_t k = r.router == Router::kSpaced ? spaced_rows(0.25, data.context) : capacity_rows(0.25, data.context);
  std::vector<int64_t> mlp_rows(size_t(c.num_hidden_layers), N);
  ASSERT_EQ(int64_t(record.layer.size()), routers_of(r.topology));
  for (const LayerRouting& layer : record.layer) {
    EXPECT_EQ(layer.rows, N);
    EXPECT_LE(layer.routed, B * k) << layer.section.name();
    EXPECT_TRUE(layer.routed == B * k || r.choice == Choice::kToken) << layer.section.name();
    if (layer.section.mlp()) mlp_rows[size_t(layer.section.block)] = layer.routed;
  }
  ASSERT_EQ(record.experts.size(), c.has_experts() ? 4u : 0u);
  for (const LayerExperts& layer : record.experts) {
    const int64_t rows = mlp_rows[size_t(layer.block)];
    if (rows == N || r.choice == Choice::kExpert || c.experts.choice == Choice::kToken) {
      expect_shares_as_configured(layer, c.experts, rows, B);
      continue;
    }
    EXPECT_EQ(layer.rows, rows);  // of sequences that each have as many rows as chose the block
    for (const int64_t n : layer.expert_rows) EXPECT_NEAR(double(n), c.experts.capacity * double(rows), double(B));
  }
}

std::string name_of(const Variant& v) {
  return std::string(name_of(v.topology)) + "_" + name_of(v.gate) + "_" + v.rule.name + "_" + v.experts.name;
}
void PrintTo(const Variant& v, std::ostream* out) { *out << name_of(v); }

class Variants : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(variants()),
                         [](const auto& info) { return name_of(info.param); });

TEST_P(Variants, learn_or_are_refused) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  RoutingConfig& r = c.model.routing;
  r.topology = GetParam().topology;
  r.gate = GetParam().gate;
  r.causal = GetParam().rule.causal;
  r.router = GetParam().rule.router;
  r.choice = GetParam().rule.choice;
  c.model.experts = GetParam().experts.config;
  // One batch of text: as many tokens as a step reads, and one more.
  const std::string text = synthetic_text(120).substr(0, size_t(c.data.batch * c.data.context + 1));
  c.data.path = dir.write("batch.txt", text).string();
  c.data.valid_path = dir.write("valid.txt", synthetic_text(20, 4)).string();
  c.train.steps = 20;
  c.train.learning_rate = 0.01;
  if (const auto wrong = faults(c.model); !wrong.empty()) return expect_refused(c, wrong);
  const auto trainer = trainer_of(c);
  std::vector<double> loss;
  for (int step = 0; step < 20; step++) {
    const StepRecord& record = trainer->step();
    loss.push_back(record.loss);
    ASSERT_TRUE(std::isfinite(record.loss) && std::isfinite(record.norm.model)) << step;
    expect_shares(record, trainer->model().config(), c.data);
  }
  const double last = std::accumulate(loss.end() - 5, loss.end(), 0.0) / 5;
  EXPECT_TRUE(last < loss[0] || r.router == Router::kRandom) << loss[0] << " to " << last;
}

}  // namespace
}  // namespace isobath
