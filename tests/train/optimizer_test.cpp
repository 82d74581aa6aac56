#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/adamw.h"
#include "support/thread_count.h"
#include "train_support.h"

namespace isobath {
namespace {

using testing::error_of;
using testing::expect_in;
using testing::values_of;

ModelConfig with_predictor() {
  ModelConfig c;
  c.vocab_size = 11;
  c.hidden_size = 12;
  c.intermediate_size = 20;
  c.num_hidden_layers = 2;
  c.routing.topology = Topology::kJoint;
  c.routing.causal = Causal::kPredictor;
  resolve(c, 8);
  return c;
}

// N(0, scale^2), with another scale for the predictor.
void fill_gradient(WeightSet& g, uint64_t seed, float scale, float predictor_scale) {
  const Rng rng(seed, Stream::kBench);
  for (size_t i = 0; i < g.list().size(); i++)
    for (int64_t j = 0; j < g.at(i).numel(); j++)
      g.at(i)[j] = (is_predictor(g.list()[i].kind) ? predictor_scale : scale) * rng.normal(i, uint64_t(j));
}

double norm_of(const WeightSet& g, bool predictor) {
  double sum = 0;
  for (size_t i = 0; i < g.list().size(); i++)
    for (int64_t j = 0; j < g.at(i).numel() && is_predictor(g.list()[i].kind) == predictor; j++)
      sum += double(g.at(i)[j]) * double(g.at(i)[j]);
  return std::sqrt(sum);
}

// Weights that decay are the matrices of the blocks and the head.
bool should_decay(const std::string& name) {
  return name.find("_proj.") != std::string::npos || name == "lm_head.weight";
}

struct Clipping {
  const char* name;
  float model, predictor;  // size of the gradients
  double clip;
};

class OptimizerFormula : public ::testing::TestWithParam<Clipping> {};

TEST_P(OptimizerFormula, every_weight_in_float64) {
  const Clipping p = GetParam();
  const ModelConfig config = with_predictor();
  const OptimizerOptions options{.beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.2, .clip = p.clip};
  Optimizer optimizer(config, options);
  WeightSet weights(config), gradient(config);
  initialize(weights, 5);
  std::vector<std::vector<reference::AdamState>> want;
  for (size_t i = 0; i < weights.list().size(); i++) {
    want.emplace_back();
    for (int64_t j = 0; j < weights.at(i).numel(); j++) want[i].push_back({double(weights.at(i)[j]), 0, 0});
  }
  for (int64_t step = 1; step <= 4; step++) {
    const double rate = 0.03 / double(step);
    fill_gradient(gradient, uint64_t(step), p.model, p.predictor);
    const double norm[2] = {norm_of(gradient, false), norm_of(gradient, true)};
    for (size_t i = 0; i < want.size(); i++) {
      const WeightInfo& info = weights.list()[i];
      const double n = norm[is_predictor(info.kind)], scale = p.clip > 0 && n > p.clip ? p.clip / n : 1;
      const AdamW o{
          .lr = float(rate), .beta1 = 0.8f, .beta2 = 0.9f, .weight_decay = should_decay(info.name) ? 0.2f : 0.0f};
      for (size_t j = 0; j < want[i].size(); j++)
        want[i][j] = reference::adamw(want[i][j], scale * double(gradient.at(i)[int64_t(j)]), o, step);
    }
    const GradientNorms norms = optimizer.step(weights, gradient, rate, step);
    EXPECT_NEAR(norms.model, norm[0], 1e-12 * norm[0]);
    EXPECT_NEAR(norms.predictor, norm[1], 1e-12 * norm[1]);
    for (const float g : values_of(gradient)) ASSERT_EQ(g, 0);
  }
  for (size_t i = 0; i < want.size(); i++)
    for (int64_t j = 0; j < weights.at(i).numel(); j++) {
      const reference::AdamState& s = want[i][size_t(j)];
      ASSERT_NEAR(weights.at(i)[j], s.w, 2e-6 * (std::abs(s.w) + 0.03)) << weights.list()[i].name << " " << j;
      ASSERT_NEAR(optimizer.first.at(i)[j], s.m, 2e-6 * std::sqrt(s.v)) << weights.list()[i].name << " " << j;
      ASSERT_NEAR(optimizer.second.at(i)[j], s.v, 2e-6 * s.v) << weights.list()[i].name << " " << j;
    }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerFormula,
                         ::testing::Values(Clipping{"NeitherClipped", 1e-4f, 1e-4f, 1.0},
                                           Clipping{"ModelClipped", 3.0f, 1e-3f, 1.0},
                                           Clipping{"PredictorClipped", 1e-4f, 3.0f, 0.5},
                                           Clipping{"BothClippedApart", 0.5f, 7.0f, 1.5},
                                           Clipping{"NoClipping", 3.0f, 3.0f, 0.0}),
                         [](const auto& info) { return info.param.name; });

TEST(Optimizer, a_gradient_that_is_not_finite_changes_nothing) {
  const ModelConfig config = with_predictor();
  Optimizer optimizer(config, {});
  WeightSet weights(config), gradient(config);
  initialize(weights, 5);
  fill_gradient(gradient, 1, 1, 1);
  optimizer.step(weights, gradient, 0.01, 1);
  const auto w = values_of(weights), m = values_of(optimizer.first), v = values_of(optimizer.second);
  for (size_t i = 0; i < weights.list().size(); i++)
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      fill_gradient(gradient, 2, 1, 1);
      gradient.at(i)[gradient.at(i).numel() - 1] = bad;
      const Error error = error_of([&] { optimizer.step(weights, gradient, 0.01, 2); });
      EXPECT_EQ(error.fault(), Fault::kWork);
      expect_in(error.what(), "the gradient of " + weights.list()[i].name + " is not finite");
      ASSERT_EQ(values_of(weights), w);
      ASSERT_EQ(values_of(optimizer.first), m);
      ASSERT_EQ(values_of(optimizer.second), v);
    }
}

TEST(Optimizer, same_bits_for_any_number_of_threads) {
  ModelConfig config = with_predictor();
  config.vocab_size = 6000;  // an embedding of several chunks
  std::vector<float> got[2];
  double norm[2];
  for (const int threads : {1, 2}) {
    const testing::ThreadCount count(threads);
    Optimizer optimizer(config, {});
    WeightSet weights(config), gradient(config);
    initialize(weights, 5);
    fill_gradient(gradient, 1, 1, 1);
    norm[threads - 1] = optimizer.step(weights, gradient, 0.01, 1).model;
    got[threads - 1] = values_of(weights);
  }
  EXPECT_EQ(norm[0], norm[1]);
  EXPECT_EQ(got[0], got[1]);
}

}  // namespace
}  // namespace isobath
