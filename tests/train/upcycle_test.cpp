// Invariant 16: a model made from a dense one is that model until training lets its capacity fall.
#include "train/upcycle.h"

#include <gtest/gtest.h>

#include <functional>

#include "model/names.h"
#include "model/network.h"
#include "support/compare.h"
#include "train/start_from.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

RoutingConfig joint(const std::function<void(RoutingConfig&)>& change = {}) {
  RoutingConfig routing;
  routing.topology = Topology::kJoint;
  if (change) change(routing);
  return routing;
}

class Upcycled : public ::testing::Test {
 protected:
  Upcycled() {
    dense_.model.routing.topology = Topology::kDense;
    dense_.train.steps = 5;
    trainer_ = trainer_of(dense_);
    while (trainer_->steps_done() < 5) trainer_->step();
  }
  // Losses and the last norm's input of the validation text, row by row.
  std::vector<float> look(Model& model, const Selection& how) {
    Evaluator evaluator(model.config(), corpus_of(dense_).train, {.T = 24, .B = 3});
    model.prepare(evaluator.rows());
    std::vector<float> seen;
    evaluator.run(model, how, 9, {}, {}, [&](const Activations& acts, int64_t rows) {
      seen.insert(seen.end(), acts.x.data, acts.x.data + rows * model.config().hidden_size);
      seen.insert(seen.end(), acts.loss.data, acts.loss.data + rows);
    });
    return seen;
  }
  const TempDir dir_;
  RunConfig dense_ = tiny_run(dir_);
  std::unique_ptr<Trainer> trainer_;
};

TEST_F(Upcycled, computes_what_the_dense_model_does_to_the_bit) {
  RoutingConfig routing = joint();
  Model dense(trainer_->model().config());
  for (size_t i = 0; i < dense.weights.list().size(); i++)
    std::copy_n(trainer_->model().weights.at(i).data, dense.weights.at(i).numel(), dense.weights.at(i).data);
  const std::vector<float> want = look(dense, {});
  for (const RouterInput input : {RouterInput::kRaw, RouterInput::kNormed}) {
    routing.router_input = input;
    const auto model = upcycle(dense, routing);
    EXPECT_EQ(model->config().routing.capacity, std::vector<double>{0.125});
    EXPECT_EQ(look(*model, {}), want);
    EXPECT_EQ(look(*model, {.by = SelectBy::kCausal}), want);
  }
}

// (x + a) + m is not x + (a + m): routed by halves the model starts within rounding of the dense one.
TEST_F(Upcycled, by_halves_computes_what_the_dense_model_does_within_rounding) {
  Model dense(trainer_->model().config());
  copy_weights(dense.weights, trainer_->model().weights);
  const std::vector<float> want = look(dense, {});
  for (const Topology topology : {Topology::kStaggered, Topology::kAttention, Topology::kMlp}) {
    const auto model = upcycle(dense, joint([&](auto& r) { r.topology = topology; }));
    const std::vector<float> got = look(*model, {.by = SelectBy::kCausal});
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(got[i], want[i], 1e-4) << name_of(topology);
  }
}

TEST_F(Upcycled, takes_its_first_step_as_the_dense_model_and_then_falls) {
  const auto model = upcycle(trainer_->model(), joint([](auto& r) { r.capacity = {0.25}; }));
  const fs::path folder = dir_ / "upcycled", dense_folder = dir_ / "dense";
  fs::create_directories(folder);
  fs::create_directories(dense_folder);
  save_model(folder, *model, Tokenizer::bytes());
  save_model(dense_folder, trainer_->model(), Tokenizer::bytes());
  RunConfig c = tiny_run(dir_), d = c;
  take_architecture(c, folder);
  take_architecture(d, dense_folder);
  c.train.capacity_anneal = 4;
  const auto run = trainer_of(c), dense_run = trainer_of(d);
  EXPECT_EQ(run->step().loss, dense_run->step().loss);
  EXPECT_EQ(run->config().model.capacity(1), 1 - 0.75 / 4) << "of the next step";
  EXPECT_EQ(run->model().config().capacity(1), 1 - 0.75 / 4) << "evaluation and checkpoints go with it";
  const int64_t rows = 4 * 24;
  for (const double capacity : {1 - 0.75 / 4, 1 - 0.75 / 2, 1 - 0.75 * 3 / 4, 0.25, 0.25}) {
    const StepRecord& record = run->step();
    EXPECT_EQ(record.layer[0].routed, 4 * int64_t(capacity * 24 + 1e-9)) << capacity;
    EXPECT_EQ(record.layer[0].rows, rows);
  }
}

TEST_F(Upcycled, refuses_what_cannot_start_as_the_dense_model) {
  const Model& dense = trainer_->model();
  const auto wrong = [&](const RoutingConfig& routing, const char* says) {
    expect_in(error_of([&] { upcycle(dense, routing); }).what(), says);
  };
  wrong({}, "topology = dense routes nothing");
  wrong(joint([](auto& r) { r.gate = Gate::kSigmoid; }), "gate = sigmoid");
  wrong(joint([](auto& r) { r.router = Router::kRandom; }), "router = random");
  wrong(joint([](auto& r) { r.every = 9; }), "routes no block");
  const auto model = upcycle(dense, joint());
  expect_in(error_of([&] { upcycle(*model, joint()); }).what(), "routed already");
}

}  // namespace
}  // namespace isobath
