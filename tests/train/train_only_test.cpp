// Weights that a run leaves alone keep their bits.
#include "train/train_only.h"

#include <gtest/gtest.h>

#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

std::vector<std::string> chosen(const WeightSet& set, std::string_view patterns) {
  const std::vector<uint8_t> trained = trained_weights(set.list(), patterns);
  std::vector<std::string> names;
  for (size_t i = 0; i < trained.size(); i++)
    if (trained[i]) names.push_back(set.list()[i].name);
  return names;
}

ModelConfig with_predictor() {
  ModelConfig c;
  c.vocab_size = 11;
  c.hidden_size = 12;
  c.num_hidden_layers = 2;
  c.routing.topology = Topology::kJoint;
  c.routing.causal = Causal::kPredictor;
  resolve(c, 8);
  return c;
}

TEST(TrainOnly, takes_parts_of_names_and_globs) {
  const WeightSet set(with_predictor(), Allocate::kNo);
  EXPECT_EQ(chosen(set, "").size(), set.list().size());
  EXPECT_EQ(chosen(set, "router"), std::vector<std::string>{"model.layers.1.router.weight"});
  EXPECT_EQ(chosen(set, "router,lm_head"),
            (std::vector<std::string>{"model.layers.1.router.weight", "lm_head.weight"}));
  EXPECT_EQ(chosen(set, "*.predictor.*.bias"),
            (std::vector<std::string>{"model.layers.1.predictor.fc1.bias", "model.layers.1.predictor.fc2.bias"}));
  EXPECT_EQ(chosen(set, "model.layers.?.input_layernorm.weight").size(), 2u);
  EXPECT_EQ(count_trained(with_predictor(), "router"), 12);
  EXPECT_EQ(count_trained(with_predictor(), ""), count_weights(with_predictor()));
}

TEST(TrainOnly, router_means_the_routers_of_experts_too) {
  ModelConfig c = with_predictor();
  c.experts.experts = 2;
  resolve(c, 8);
  const WeightSet set(c, Allocate::kNo);
  EXPECT_EQ(chosen(set, "router"),
            (std::vector<std::string>{"model.layers.0.block_sparse_moe.gate.weight",
                                      "model.layers.1.block_sparse_moe.gate.weight", "model.layers.1.router.weight"}));
  EXPECT_EQ(chosen(set, "router.weight"), std::vector<std::string>{"model.layers.1.router.weight"})
      << "a part of names";
  EXPECT_EQ(count_trained(c, "router"), 12 + 2 * 2 * 12);
}

TEST(TrainOnly, refuses_what_matches_nothing) {
  const WeightSet set(with_predictor(), Allocate::kNo);
  for (const char* wrong : {"rooter", "router,rooter", "layers.1.*", ",", "router,,mlp"})
    expect_in(error_of([&] { trained_weights(set.list(), wrong); }).what(), "train.train_only: no weight");
}

TEST(TrainOnly, refuses_what_no_run_moves) {
  ModelConfig c = with_predictor();
  c.routing.router_offset = true;
  const WeightSet set(c, Allocate::kNo);
  for (const char* wrong : {"offset", "mlp,router.offset"})
    expect_in(error_of([&] { trained_weights(set.list(), wrong); }).what(), "isobath calibrate sets");
  EXPECT_EQ(chosen(set, "router").size(), 2u) << "beside a weight that it moves";
}

TEST(TrainOnly, leaves_the_bits_of_the_others_and_their_moments) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  c.train.train_only = "router,predictor";
  c.model.routing.causal = Causal::kPredictor;
  const auto trainer = trainer_of(c);
  const WeightSet& w = trainer->model().weights;
  std::vector<std::vector<float>> before;
  for (size_t i = 0; i < w.list().size(); i++) before.emplace_back(w.at(i).data, w.at(i).data + w.at(i).numel());
  const double all = [&] {
    RunConfig whole = c;
    whole.train.train_only = "";
    return trainer_of(whole)->step().norm.model;
  }();
  EXPECT_LT(trainer->step().norm.model, all) << "the norm is of what is trained";
  trainer->step();
  for (size_t i = 0; i < w.list().size(); i++) {
    const std::vector<float> after(w.at(i).data, w.at(i).data + w.at(i).numel());
    const bool trained = w.list()[i].kind == Kind::kRouter || w.list()[i].kind == Kind::kPredictor;
    EXPECT_EQ(after != before[i], trained) << w.list()[i].name;
  }
}

TEST(TrainOnly, freezes_a_threshold_that_is_not_named) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  c.model.routing.causal = Causal::kThreshold;
  for (const bool named : {false, true}) {
    c.train.train_only = named ? "mlp,router.threshold" : "mlp";
    const auto trainer = trainer_of(c);
    trainer->step();
    EXPECT_EQ(trainer->model().weights.weights().section[1].router.threshold[0] != 0, named);
  }
}

}  // namespace
}  // namespace isobath
