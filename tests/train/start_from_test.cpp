// Runs that start from the weights of a model folder.
#include "train/start_from.h"

#include <gtest/gtest.h>

#include <map>

#include "checkpoint/safetensors.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

std::map<std::string, std::vector<float>> by_name(const WeightSet& set) {
  std::map<std::string, std::vector<float>> all;
  for (size_t i = 0; i < set.list().size(); i++)
    all[set.list()[i].name].assign(set.at(i).data, set.at(i).data + set.at(i).numel());
  return all;
}

// A dense run of three steps, and a config that starts from it.
class StartFrom : public ::testing::Test {
 protected:
  StartFrom() {
    dense_.model.routing.topology = Topology::kDense;
    dense_.train.steps = 3;
    checkpoint_ = run_and_watch(dense_).result.checkpoint;
    routed_ = tiny_run(dir_);
    take_architecture(routed_, checkpoint_);
    routed_.model.routing = tiny_run(dir_).model.routing;
    routed_.train.out = (dir_ / "routed").string();
  }
  const TempDir dir_;
  RunConfig dense_ = tiny_run(dir_), routed_;
  fs::path checkpoint_;
};

// The predictors of the model would be lost.
TEST_F(StartFrom, a_model_of_another_routing_is_refused_with_what_differs) {
  routed_.train.steps = 2;
  routed_.train.out = (dir_ / "predicting").string();
  routed_.model.routing.causal = Causal::kPredictor;
  const fs::path predicting = run_and_watch(routed_).result.checkpoint;
  RunConfig other = routed_;
  take_architecture(other, predicting);
  other.model.routing.causal = Causal::kBce;
  other.train.out = (dir_ / "other").string();
  const std::string said = error_of([&] { trainer_of(other); }).what();
  expect_in(said, "predictor.fc1.weight, for which this run has no place");
  expect_in(said, "causal = \"bce\" (there \"predictor\")");
  expect_in(said, "leave these settings out");
  other.model.routing = RoutingConfig();
  other.model.routing.topology = Topology::kDense;
  expect_in(error_of([&] { trainer_of(other); }).what(), "its routing differs: topology = \"dense\";");
}

TEST_F(StartFrom, a_dense_model_gives_all_but_the_routers) {
  routed_.train.learning_rate = 1e-3;
  const auto trainer = trainer_of(routed_), fresh = [&] {
    RunConfig c = routed_;
    c.train.from = "";
    return trainer_of(c);
  }();
  const auto got = by_name(trainer->model().weights), start = by_name(fresh->model().weights);
  const TensorFolder stored(checkpoint_);
  int64_t taken = 0;
  for (const auto& [name, values] : got) {
    if (!stored.has(name)) {
      EXPECT_EQ(values, start.at(name)) << name << " starts as usual";
      continue;
    }
    taken++;
    std::vector<float> want(values.size());
    for (size_t i = 0; i < trainer->model().weights.list().size(); i++)
      if (trainer->model().weights.list()[i].name == name)
        stored.read(name, {want.data(), trainer->model().weights.list()[i].shape});
    EXPECT_EQ(values, want) << name;
  }
  EXPECT_EQ(taken, int64_t(stored.names().size()));
  EXPECT_EQ(trainer->steps_done(), 0);
  EXPECT_EQ(trainer->step().step, 1);
}

TEST_F(StartFrom, a_resumed_run_goes_on_to_the_bit_without_the_folder) {
  RunConfig whole = routed_;
  whole.train.out = (dir_ / "whole").string();
  const Watched straight = run_and_watch(whole);
  const Watched first = run_and_watch(routed_, 4);
  RunConfig rest = stored_options(first.result.checkpoint);
  rest.train.from = first.result.checkpoint.string();
  fs::remove_all(dense_.train.out);
  const Watched second = run_and_watch(rest, -1, first.result.checkpoint);
  EXPECT_EQ(read_file(straight.result.checkpoint / "model.safetensors"),
            read_file(second.result.checkpoint / "model.safetensors"));
}

TEST_F(StartFrom, a_routed_model_brings_its_routing) {
  routed_.model.routing.causal = Causal::kPredictor;
  routed_.model.routing.capacity = {0.5};
  routed_.train.steps = 2;
  const fs::path checkpoint = run_and_watch(routed_).result.checkpoint;
  RunConfig next = tiny_run(dir_);
  take_architecture(next, checkpoint);
  EXPECT_EQ(next.model.routing.causal, Causal::kPredictor);
  EXPECT_EQ(next.model.routing.capacity, std::vector<double>{0.5});
  const auto trainer = trainer_of(next);
  EXPECT_EQ(by_name(trainer->model().weights).size(), TensorFolder(checkpoint).names().size());
  next.model.routing.causal = Causal::kBce;
  expect_in(error_of([&] { trainer_of(next); }).what(), "model.layers.1.predictor.fc1.weight");
}

TEST_F(StartFrom, another_architecture_is_refused_by_key) {
  routed_.model.hidden_size = 32;
  expect_in(error_of([&] { trainer_of(routed_); }).what(), "model.hidden_size is 32, but the weights of");
}

}  // namespace
}  // namespace isobath
