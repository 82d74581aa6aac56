// Every weight's gradient of a whole step equals the reference's with the selection fixed (invariant 3).
#include <gtest/gtest.h>

#include "model/network.h"
#include "support/compare.h"
#include "support/reference_gradient.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

class Gradient : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(Step, Gradient, ::testing::ValuesIn(tiny_cases()), case_name);

TEST_P(Gradient, OfEveryWeightEqualsTheReference) {
  TinyModel model(GetParam().config, limits_for(GetParam().sequences));
  const TinyBatch batch(GetParam().sequences, model.config);
  model.step(batch, {.step = 3});
  expect_reference_gradients(model, batch);
}

TEST(Gradients, AreAddedToWhatIsThere) {
  ModelConfig config = tiny_routed();
  config.routing.causal = Causal::kPredictor;
  config.routing.router_bias = true;
  TinyModel model(config, {.sequences = 2, .T = 9});
  const TinyBatch batch(random_sequences({9, 6}, config.vocab_size), model.config);
  model.step(batch);
  std::vector<Buffer> once;
  for (size_t i = 0; i < model.gradient.list().size(); i++) {
    once.emplace_back(model.gradient.at(i).shape);
    std::copy_n(model.gradient.at(i).data, model.gradient.at(i).numel(), once.back().values.data());
  }
  fill(model.gradient, 10);
  model.add_step(batch, {}, {.targets = batch.targets(), .rows = batch.rows()});
  for (size_t i = 0; i < once.size(); i++)
    for (int64_t j = 0; j < once[i].shape.numel(); j++)
      ASSERT_NEAR(model.gradient.at(i)[j], 10 + once[i][j], 1e-5) << model.gradient.list()[i].name;
}

// Invariant 3 in the plainest form: the router's gradient from the language model's loss alone, by differences.
TEST(RouterGradient, OfTheLanguageModelLossEqualsCentralDifferences) {
  ModelConfig config = tiny_routed();
  config.routing.causal = Causal::kNone;
  for (const Gate gate : {Gate::kRaw, Gate::kSigmoid, Gate::kTanh}) {
    config.routing.gate = gate;
    TinyModel model(config, {.sequences = 2, .T = 12});
    const TinyBatch batch(random_sequences({12, 7}, config.vocab_size), model.config);
    model.step(batch);
    NamedWeights<double> weights = reference_weights(model.weights);
    const std::string name = "model.layers.1.router.weight";
    const auto mean_loss = [&](const std::vector<double>& router) {
      weights[name] = router;
      double sum = 0;
      for (const double loss : run_reference(model, batch, weights).loss) sum += loss;
      return sum / double(batch.targets());
    };
    const std::vector<double> want = reference::central_difference(weights[name], mean_loss);
    const F32 got = model.gradient.weights().section[1].router.w;
    double largest = 0;
    for (size_t d = 0; d < want.size(); d++) {
      EXPECT_NEAR(got[int64_t(d)], want[d], 2e-6) << name_of(gate) << " " << d;
      largest = std::max(largest, std::abs(want[d]));
    }
    EXPECT_GT(largest, 1e-3) << name_of(gate);
  }
}

}  // namespace
}  // namespace isobath
