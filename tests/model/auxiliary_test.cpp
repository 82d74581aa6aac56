// The losses that make selection causal: targets, what their gradients reach, and sums over micro-batches
// (invariants 11 and 12).
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "model/network.h"
#include "support/compare.h"
#include "support/tiny_model.h"

namespace isobath {
namespace {

using namespace isobath::testing;

// ---- targets
// ------------------------------------------------------------------------------------------------------------

struct Layout {
  const char* name;
  std::vector<std::vector<int64_t>> documents;
  Scope scope;
};
const Layout kLayouts[] = {{"OneSequence", {{12}}, Scope::kSequence},
                           {"Four", {{8}, {8}, {8}, {8}}, Scope::kSequence},
                           {"Ragged", {{3}, {16}, {1}}, Scope::kSequence},
                           {"Packed", {{5, 4, 7}, {9}}, Scope::kDocument}};
constexpr Topology kTopologies[] = {Topology::kJoint, Topology::kStaggered, Topology::kAttention, Topology::kMlp};

std::vector<Sequence> sequences_of(const Layout& layout) {
  std::vector<Sequence> sequences;
  for (const auto& lengths : layout.documents)
    sequences.push_back(random_sequence(int64_t(sequences.size()), lengths, tiny_config().vocab_size));
  return sequences;
}

constexpr double kAuxWeight = 0.25, kScale = 1.0 / 64;

// What the rule of section l was told of x, and how it answered.
struct Told {
  std::vector<float> logit, dlogit;
  double sum;
};
Told told_of(TinyModel& model, int64_t l, CF32 x, const Batch& batch) {
  const RouterContext context{model.config, model.config.section(l), model.weights.weights().section[size_t(l)].router,
                              model.products.section(l).fc1, model.acts.scratch};
  RouterActs& r = model.router(l);
  choose_rows(context, r, x, batch, {});
  auxiliary_loss(context, model.gradient.weights().section[size_t(l)].router, r, x, batch,
                 {.per_row = kScale, .per_run = kScale});
  const bool predictor = model.config.has_predictor();
  const float* dlogit = predictor ? model.acts.scratch.dpredicted.data : r.dscore.data;
  return {{r.logit.data, r.logit.data + x.rows()}, {dlogit, dlogit + x.rows()}, r.auxiliary_sum};
}

class Targets : public ::testing::TestWithParam<std::tuple<Layout, Topology, Causal>> {
 protected:
  Targets() {
    config_.routing.capacity_scope = config_.routing.attention_scope = layout_.scope;
    config_.routing.topology = std::get<1>(GetParam());
    config_.routing.causal = std::get<2>(GetParam());
    config_.routing.aux_weight = kAuxWeight;
  }
  // f(l) of the routed sections.
  template <class F>
  void for_routers(const TinyModel& model, F f) {
    int64_t routers = 0;
    for (int64_t l = 0; l < model.config.sections(); l++)
      if (model.config.section(l).routed) f(l), routers++;
    EXPECT_EQ(routers, model.config.routing.topology == Topology::kStaggered ? 2 : 1);
  }
  const Layout layout_ = std::get<0>(GetParam());
  ModelConfig config_ = tiny_routed(0.3);
  const std::vector<Sequence> sequences_ = sequences_of(layout_);
};
INSTANTIATE_TEST_SUITE_P(CrossEntropy, Targets,
                         ::testing::Combine(::testing::ValuesIn(kLayouts), ::testing::ValuesIn(kTopologies),
                                            ::testing::Values(Causal::kBce, Causal::kPredictor)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_" + name_of(std::get<1>(info.param)) +
                                  "_" + name_of(std::get<2>(info.param));
                         });

// The gradient of a logit is sigmoid - 1 for the top k of each run by the router's score, sigmoid for the others.
TEST_P(Targets, AreTheTopKOfEveryRun) {
  TinyModel model(config_, limits_for(sequences_));
  const TinyBatch batch(sequences_, model.config);
  const int64_t N = batch.rows();
  const Buffer x = random_buffer({N, config_.hidden_size}, 8);
  const double weight = model.config.has_predictor() ? kScale : kAuxWeight * kScale;
  for_routers(model, [&](int64_t l) {
    const Told told = told_of(model, l, x, batch.view());
    const std::vector<double> r(model.router(l).score.data, model.router(l).score.data + N);
    const std::vector<bool> top = reference::top_k(r, batch.capacity_begin(), 0.3);
    double sum = 0;
    for (int64_t n = 0; n < N; n++) {
      const double sigmoid = 1 / (1 + std::exp(-double(told.logit[size_t(n)]))), target = top[size_t(n)] ? 1 : 0;
      EXPECT_NEAR(told.dlogit[size_t(n)], weight * (sigmoid - target), 1e-8) << n;
      sum += -target * std::log(sigmoid) - (1 - target) * std::log(1 - sigmoid);
    }
    EXPECT_NEAR(told.sum, sum, 1e-5 * double(N));
  });
}

// Whatever is packed with a document, or stands beside a sequence, however long it is.
TEST_P(Targets, AreThoseOfTheRunAlone) {
  TinyModel together(config_, limits_for(sequences_));
  const TinyBatch batch(sequences_, together.config);
  const Buffer x = random_buffer({batch.rows(), config_.hidden_size}, 8);
  for_routers(together, [&](int64_t l) {
    const Told all = told_of(together, l, x, batch.view());
    int64_t begin = 0;
    for (const Sequence& sequence : sequences_)
      for (const auto& document : sequence.documents) {
        const Sequence run{.id = sequence.id, .documents = {document}};
        TinyModel model(config_, limits_for({run}));
        const TinyBatch own(std::vector{run}, model.config);
        const Told alone = told_of(model, l, x.view().slice(begin, own.rows()), own.view());
        expect_same_bits(alone.dlogit.data(), all.dlogit.data() + begin, own.rows(), "gradient of the logit");
        expect_same_bits(alone.logit.data(), all.logit.data() + begin, own.rows(), "logit");
        begin += own.rows();
      }
    EXPECT_EQ(begin, batch.rows());
  });
}

// ---- what gradients reach
// -----------------------------------------------------------------------------------------------

std::vector<float> gradient_of(TinyModel& model, const std::string& name) {
  for (size_t i = 0; i < model.gradient.list().size(); i++)
    if (model.gradient.list()[i].name == name)
      return {model.gradient.at(i).data, model.gradient.at(i).data + model.gradient.at(i).numel()};
  ADD_FAILURE() << "no weight " << name;
  return {};
}

class Predictor : public ::testing::TestWithParam<std::tuple<Topology, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Topologies, Predictor,
                         ::testing::Combine(::testing::ValuesIn(kTopologies), ::testing::Values(0, 1)),
                         [](const auto& info) {
                           return std::string(name_of(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) > 0 ? "_looking_back" : "");
                         });

TEST_P(Predictor, GradientsReachNothingButThePredictor) {
  ModelConfig config = tiny_routed();
  config.routing.topology = std::get<0>(GetParam());
  config.routing.causal = Causal::kNone;
  const std::vector<Sequence> sequences = random_sequences({12, 7, 9}, config.vocab_size);
  TinyModel none(config, limits_for(sequences));
  config.routing.causal = Causal::kPredictor;
  config.routing.predictor_lookback = std::get<1>(GetParam());
  TinyModel predictor(config, limits_for(sequences));
  const TinyBatch batch(sequences, none.config);
  EXPECT_EQ(none.step(batch), predictor.step(batch));
  expect_same_bits(none.acts.dx.data, predictor.acts.dx.data, batch.rows() * config.hidden_size, "dx");
  for (const WeightInfo& info : none.weights.list()) {
    const std::vector<float> a = gradient_of(none, info.name), b = gradient_of(predictor, info.name);
    expect_same_bits(a.data(), b.data(), int64_t(a.size()), info.name.c_str());
  }
  int64_t predictors = 0;
  for (const WeightInfo& info : predictor.weights.list()) {
    if (!is_predictor(info.kind)) continue;
    predictors++;
    double sum = 0;
    for (const float g : gradient_of(predictor, info.name)) sum += std::abs(double(g));
    EXPECT_GT(sum, 0) << info.name;
  }
  EXPECT_EQ(predictors, 4 * predictor.config.routers());
  for (int64_t l = 0; l < none.config.sections(); l++) {
    if (!none.config.section(l).routed) continue;
    EXPECT_GT(predictor.router(l).auxiliary_sum, 0);
    EXPECT_EQ(none.router(l).auxiliary_sum, 0);
  }
}

TEST(AuxiliaryWeight, ReachesRouterAndResidualStream) {
  ModelConfig config = tiny_routed();
  const TinyBatch batch(random_sequences({12, 7}, config.vocab_size), config);
  const auto gradients = [&](double weight, const char* name) {
    config.routing.aux_weight = weight;
    TinyModel model(config, {.sequences = 2, .T = 12});
    model.step(batch);
    EXPECT_GT(model.router(1).auxiliary_sum, 0) << "the loss is reported whatever its weight";
    return gradient_of(model, name);
  };
  for (const char* name : {"model.layers.1.router.weight", "model.layers.0.mlp.down_proj.weight"})
    EXPECT_NE(gradients(0, name), gradients(1, name)) << name;
  // Blocks behind the router do not see it.
  const char* behind = "model.layers.2.mlp.down_proj.weight";
  EXPECT_EQ(gradients(0, behind), gradients(1, behind));
}

// With weight 0 the router's cross-entropy is watched, not trained: the gradients are those of causal = none.
TEST(AuxiliaryWeight, OfZeroIsNoCausalRule) {
  ModelConfig config = tiny_routed();
  config.routing.aux_weight = 0;
  TinyModel bce(config, {.sequences = 2, .T = 12});
  config.routing.causal = Causal::kNone;
  TinyModel none(config, {.sequences = 2, .T = 12});
  const TinyBatch batch(random_sequences({12, 7}, config.vocab_size), config);
  bce.step(batch);
  none.step(batch);
  for (const WeightInfo& info : none.weights.list())
    EXPECT_EQ(gradient_of(none, info.name), gradient_of(bce, info.name));
}

TEST(ZLoss, IsReportedWithoutItsWeightAndPullsScoresToZero) {
  ModelConfig config = tiny_routed();
  config.routing.causal = Causal::kNone;
  const TinyBatch batch(random_sequences({12, 7}, config.vocab_size), config);
  TinyModel without(config, {.sequences = 2, .T = 12});
  config.routing.z_weight = 0.25;
  TinyModel with(config, {.sequences = 2, .T = 12});
  without.step(batch);
  with.step(batch);
  double sum = 0;
  for (int64_t n = 0; n < 19; n++) sum += double(with.router(1).score[n]) * double(with.router(1).score[n]);
  EXPECT_NEAR(with.router(1).square_sum, sum, 1e-10);
  EXPECT_EQ(without.router(1).square_sum, 0);
  EXPECT_NE(gradient_of(with, "model.layers.1.router.weight"), gradient_of(without, "model.layers.1.router.weight"));
}

// ---- micro-batches (invariant 12)
// -----------------------------------------------------------------------------------------

class MicroBatches : public ::testing::TestWithParam<Causal> {};
INSTANTIATE_TEST_SUITE_P(Rules, MicroBatches, ::testing::Values(Causal::kBce, Causal::kPredictor, Causal::kNone),
                         [](const auto& info) { return info.param == Causal::kNone ? "token" : name_of(info.param); });

TEST_P(MicroBatches, OfFourEqualOneOfEight) {
  ModelConfig config = tiny_routed();
  config.routing.causal = GetParam();
  config.routing.aux_weight = 0.5;
  config.routing.z_weight = 0.1;
  if (GetParam() == Causal::kNone) {
    config.routing.choice = Choice::kToken;
    config.routing.gate = Gate::kSigmoid;
  }
  const std::vector<Sequence> all = random_sequences({9, 13, 4, 1, 13, 8, 7, 2}, config.vocab_size);
  TinyModel model(config, limits_for(all));
  const TinyBatch whole(all, model.config);
  const StepScale scale{.targets = whole.targets(), .rows = whole.rows(), .runs = whole.runs()};
  // The loss, the auxiliary loss and the gradients of a step in micro-batches of `size` sequences.
  const auto run = [&](size_t size) {
    fill(model.gradient, 0);
    std::vector<double> result{0, 0};
    for (size_t begin = 0; begin < all.size(); begin += size) {
      const std::vector<Sequence> part(all.begin() + int64_t(begin), all.begin() + int64_t(begin + size));
      result[0] += model.add_step(TinyBatch(part, model.config), {}, scale);
      result[1] += model.router(1).auxiliary_sum;
    }
    for (size_t i = 0; i < model.gradient.list().size(); i++)
      result.insert(result.end(), model.gradient.at(i).data, model.gradient.at(i).data + model.gradient.at(i).numel());
    return result;
  };
  // The magnitude of the terms: each sequence's own contribution.
  std::vector<double> terms;
  for (const Sequence& sequence : all) {
    fill(model.gradient, 0);
    std::vector<double> own{model.add_step(TinyBatch({sequence}, model.config), {}, scale)};
    own.push_back(model.router(1).auxiliary_sum);
    for (size_t i = 0; i < model.gradient.list().size(); i++)
      own.insert(own.end(), model.gradient.at(i).data, model.gradient.at(i).data + model.gradient.at(i).numel());
    terms.resize(own.size());
    for (size_t i = 0; i < own.size(); i++) terms[i] += std::abs(own[i]);
  }
  const std::vector<double> one = run(8), two = run(4), eight = run(1);
  size_t nonzero = 0;
  for (size_t i = 0; i < one.size(); i++) {
    ASSERT_LE(std::abs(one[i] - two[i]), 1e-5 * terms[i] + 1e-9) << i;
    ASSERT_LE(std::abs(one[i] - eight[i]), 1e-5 * terms[i] + 1e-9) << i;
    nonzero += one[i] != 0;
  }
  EXPECT_GT(nonzero, one.size() * 9 / 10);
}

}  // namespace
}  // namespace isobath
