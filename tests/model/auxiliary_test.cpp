// The losses that make selection causal: targets, what their gradients reach, and sums over micro-batches
// (invariants 11 and 12).
#include <gtest/gtest.h>

#include <algorithm>

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
class Targets : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Bce, Targets,
                         ::testing::Values(Layout{"OneSequence", {{12}}, Scope::kSequence},
                                           Layout{"Four", {{8}, {8}, {8}, {8}}, Scope::kSequence},
                                           Layout{"Ragged", {{3}, {16}, {1}}, Scope::kSequence},
                                           Layout{"Packed", {{5, 4, 7}, {9}}, Scope::kDocument}),
                         [](const auto& info) { return info.param.name; });

// dscore right after the auxiliary loss: sigmoid(r) - 1 for the top k of each run, sigmoid(r) for the others.
TEST_P(Targets, AreTheTopKOfEveryRun) {
  ModelConfig config = tiny_routed(0.3);
  config.routing.capacity_scope = config.routing.attention_scope = GetParam().scope;
  config.routing.aux_weight = 0.25;
  std::vector<Sequence> sequences;
  for (const auto& lengths : GetParam().documents)
    sequences.push_back(random_sequence(int64_t(sequences.size()), lengths, config.vocab_size));
  TinyModel model(config, limits_for(sequences));
  const TinyBatch batch(sequences, model.config);
  const int64_t N = batch.rows();
  const Buffer x = random_buffer({N, config.hidden_size}, 8);
  RouterActs& router = model.router(1);
  const RouterContext context{model.config, model.config.section(1), model.weights.weights().section[1].router,
                              model.products.section(1).fc1, model.acts.scratch};
  choose_rows(context, router, x, batch.view(), {});
  constexpr double kScale = 1.0 / 64;
  auxiliary_loss(context, model.gradient.weights().section[1].router, router, x, batch.view(),
                 {.per_row = kScale, .per_run = kScale});

  std::vector<double> r(router.score.data, router.score.data + N);
  const std::vector<bool> top = reference::top_k(r, batch.capacity_begin(), 0.3);
  double sum = 0;
  for (int64_t n = 0; n < N; n++) {
    const double sigmoid = 1 / (1 + std::exp(-r[size_t(n)])), target = top[size_t(n)] ? 1 : 0;
    EXPECT_NEAR(router.dscore[n], 0.25 * kScale * (sigmoid - target), 1e-8) << n;
    sum += -target * std::log(sigmoid) - (1 - target) * std::log(1 - sigmoid);
  }
  EXPECT_NEAR(router.auxiliary_sum, sum, 1e-5 * double(N));
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

TEST(Predictor, GradientsReachNothingButThePredictor) {
  ModelConfig config = tiny_routed();
  config.routing.causal = Causal::kNone;
  const std::vector<Sequence> sequences = random_sequences({12, 7, 9}, config.vocab_size);
  TinyModel none(config, limits_for(sequences));
  config.routing.causal = Causal::kPredictor;
  TinyModel predictor(config, limits_for(sequences));
  const TinyBatch batch(sequences, none.config);
  EXPECT_EQ(none.step(batch), predictor.step(batch));
  for (const WeightInfo& info : none.weights.list()) {
    const std::vector<float> a = gradient_of(none, info.name), b = gradient_of(predictor, info.name);
    expect_same_bits(a.data(), b.data(), int64_t(a.size()), info.name.c_str());
  }
  double sum = 0;
  for (const float g : gradient_of(predictor, "model.layers.1.predictor.fc1.weight")) sum += std::abs(double(g));
  EXPECT_GT(sum, 0);
  EXPECT_GT(predictor.router(1).auxiliary_sum, 0);
  EXPECT_EQ(none.router(1).auxiliary_sum, 0);
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
