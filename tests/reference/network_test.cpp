// The judge is judged: one formula, three ways to its derivative.
#include "reference/network.h"

#include <gtest/gtest.h>

#include "support/tiny_model.h"

namespace isobath {
namespace {

using namespace isobath::testing;
using reference::Complex;
using reference::NamedWeights;
using reference::Var;

struct Judge {
  TinyModel model;
  TinyBatch batch;
  std::vector<reference::Choice> choices;
  NamedWeights<double> weights;

  explicit Judge(const ModelConfig& config)
      : model(config, {.sequences = 2, .T = 7}), batch(random_sequences({7, 4}, config.vocab_size), model.config) {
    model.forward(batch);
    choices = choices_of(model, batch.rows());
    weights = reference_weights(model.weights);
  }
  template <class T>
  T objective(const NamedWeights<T>& w) const {
    const auto out = reference::network(reference_shape(model.config), w, batch.reference_rows(), choices);
    T sum = 0;
    for (const T& loss : out.loss) sum += loss;
    for (const auto& layer : {out.score_bce, out.predictor_bce})
      for (const auto& rows : layer)
        for (const T& loss : rows) sum += loss;
    return sum;
  }
};

template <class T>
NamedWeights<T> converted(const NamedWeights<double>& weights) {
  NamedWeights<T> result;
  for (const auto& [name, values] : weights) result[name] = {values.begin(), values.end()};
  return result;
}

TEST(ReferenceNetwork, TapeComplexStepAndCentralDifferencesAgree) {
  ModelConfig config = tiny_routed();
  config.routing.causal = Causal::kPredictor;
  config.routing.predictor_width = 3;
  config.routing.gate = Gate::kTanh;
  const Judge judge(config);
  reference::tape().clear();
  NamedWeights<Var> taped;
  for (const auto& [name, values] : judge.weights)
    for (const double value : values) taped[name].push_back(reference::input(value));
  const std::vector<double> gradient = reference::tape().gradient(judge.objective(taped).id);

  for (const auto& [name, values] : judge.weights) {
    const size_t i = values.size() / 2;
    const double by_tape = gradient[size_t(taped.at(name)[i].id)];
    NamedWeights<Complex> complex = converted<Complex>(judge.weights);
    complex[name][i] += Complex(0, 1e-30);
    EXPECT_NEAR(by_tape, judge.objective(complex).imag() / 1e-30, 1e-11 * (1 + std::abs(by_tape))) << name;
    NamedWeights<double> up = judge.weights, down = judge.weights;
    up[name][i] += 1e-5;
    down[name][i] -= 1e-5;
    // The input of a predictor passes no gradient on, which a difference of values cannot know.
    if (name.find("predictor") != std::string::npos || name.find("lm_head") != std::string::npos) {
      EXPECT_NEAR(by_tape, (judge.objective(up) - judge.objective(down)) / 2e-5, 1e-6 * (1 + std::abs(by_tape)))
          << name;
    }
  }
}

// Two rows, one head of two, worked out by hand.
TEST(ReferenceNetwork, AttentionOfTwoRows) {
  const reference::NetworkShape shape{.D = 2, .F = 1, .V = 1, .L = 1, .H = 1, .G = 1, .K = 2, .eps = 0, .theta = 1};
  const std::vector<double> q{1, 0, 0, 2}, k{3, 0, 0, 1}, v{10, 20, 30, 40};
  std::vector<reference::Row> rows{{0, 0, 0, 0}, {0, 0, 1, 0}};
  const auto both = reference::attention(q, k, v, rows, {true, true}, shape);
  const double e0 = 1, e1 = std::exp(2 / std::sqrt(2.0));  // scores 0 and 2 of the second row
  EXPECT_DOUBLE_EQ(both[0], 10);
  EXPECT_NEAR(both[2], (e0 * 10 + e1 * 30) / (e0 + e1), 1e-12);
  const auto hidden = reference::attention(q, k, v, rows, {false, true}, shape);
  EXPECT_DOUBLE_EQ(hidden[2], 30);
  EXPECT_DOUBLE_EQ(hidden[3], 40);
  rows[1].segment = 1;
  EXPECT_DOUBLE_EQ(reference::attention(q, k, v, rows, {true, true}, shape)[2], 30);
}

TEST(ReferenceNetwork, TopKTakesTheEarlierOfEquals) {
  EXPECT_EQ(reference::top_k({1, 2, 2, 0, 5, 5, 5, 5}, {0, 4, 8}, 0.5),
            (std::vector<bool>{false, true, true, false, true, true, false, false}));
  EXPECT_EQ(reference::top_k({1, 2, 3}, {0, 3}, 0.125), (std::vector<bool>{false, false, true}));
}

}  // namespace
}  // namespace isobath
