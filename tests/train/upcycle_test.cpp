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
  // What was trained; or a model of three experts as it starts.
  std::unique_ptr<Model> dense_model(std::optional<Choice> experts = {}) {
    ModelConfig config = trainer_->model().config();
    if (experts) {
      config.experts.experts = 3;
      config.experts.choice = *experts;
      resolve(config, 24);
    }
    auto model = std::make_unique<Model>(config);
    experts ? initialize(model->weights, 5) : copy_weights(model->weights, trainer_->model().weights);
    return model;
  }
  const TempDir dir_;
  RunConfig dense_ = tiny_run(dir_);
  std::unique_ptr<Trainer> trainer_;
};

const std::pair<const char*, std::function<void(RoutingConfig&)>> kWays[] = {
    {"bce", {}},
    {"no rule", [](auto& r) { r.causal = Causal::kNone; }},
    {"threshold", [](auto& r) { r.causal = Causal::kThreshold; }},
    {"predictor", [](auto& r) { r.causal = Causal::kPredictor; }},
    {"predictor that looks back",
     [](auto& r) {
       r.causal = Causal::kPredictor;
       r.predictor_lookback = 2;
     }},
    {"normed", [](auto& r) { r.router_input = RouterInput::kNormed; }},
    {"all keys", [](auto& r) { r.cache = KeptKeys::kAll; }},
    {"capacity per block",
     [](auto& r) {
       r.every = 1;
       r.capacity = {0.1, 0.9, 0.5, 1};
     }},
    {"capacity by depth",
     [](auto& r) {
       r.capacity_schedule = CapacitySchedule::kLinear;
       r.capacity_last = 0.5;
     }},
};

TEST_F(Upcycled, computes_what_the_dense_model_does_to_the_bit) {
  for (const auto& dense : {dense_model(), dense_model(Choice::kToken), dense_model(Choice::kExpert)}) {
    const std::vector<float> top_k = look(*dense, {}), causal = look(*dense, {.by = SelectBy::kCausal});
    for (const auto& [name, change] : kWays) {
      SCOPED_TRACE(fmt::format("{}, {} experts", name, dense->config().experts.experts));
      const auto model = upcycle(*dense, joint(change));
      EXPECT_EQ(model->config().routing.capacity, joint(change).capacity);
      EXPECT_EQ(look(*model, {}), top_k);
      if (!model->config().has_causal_rule()) continue;
      EXPECT_EQ(look(*model, {.by = SelectBy::kCausal}), causal);
    }
  }
}

// (x + a) + m is not x + (a + m): routed by halves the model starts within rounding of the dense one.
TEST_F(Upcycled, by_halves_computes_what_the_dense_model_does_within_rounding) {
  for (const auto& dense : {dense_model(), dense_model(Choice::kToken)}) {
    const std::vector<float> want = look(*dense, {});
    for (const Causal causal : {Causal::kBce, Causal::kPredictor, Causal::kThreshold})
      for (const Topology topology : {Topology::kStaggered, Topology::kAttention, Topology::kMlp}) {
        SCOPED_TRACE(fmt::format("{} {}", name_of(topology), name_of(causal)));
        const auto model = upcycle(*dense, joint([&](auto& r) {
          r.topology = topology;
          r.causal = causal;
        }));
        const std::vector<float> got = look(*model, {.by = SelectBy::kCausal});
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(got[i], want[i], 1e-4);
      }
  }
}

// It says yes to all rows at first, and learns all the same.
TEST_F(Upcycled, has_a_predictor_that_learns) {
  const fs::path folder = dir_ / "predictor";
  fs::create_directories(folder);
  save_model(folder, *upcycle(trainer_->model(), joint([](auto& r) {
                                r.causal = Causal::kPredictor;
                                r.capacity = {0.25};
                              })),
             Tokenizer::bytes());
  RunConfig c = tiny_run(dir_);
  take_architecture(c, folder);
  c.train.capacity_anneal = 2;
  c.train.learning_rate = 0.01;
  const auto trainer = trainer_of(c);
  const auto fc1 = [&] {
    const CF32 w = trainer->model().weights.weights().section[1].router.fc1;
    return std::vector<float>(w.data, w.data + w.numel());
  };
  const std::vector<float> start = fc1();
  std::vector<double> loss;
  for (int i = 0; i < 10; i++) loss.push_back(trainer->step().auxiliary);
  EXPECT_NE(fc1(), start);
  EXPECT_LT(loss[9], loss[3]) << "capacity has arrived at 0.25, and the predictor follows";
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

// Capacity falls below 1 after the first update, or not at all: never silently before it.
TEST_F(Upcycled, refuses_to_start_at_another_capacity) {
  const auto folder = [&](const char* name, std::vector<double> capacity) {
    const fs::path path = dir_ / name;
    fs::create_directories(path);
    save_model(path, *upcycle(trainer_->model(), joint([&](auto& r) { r.capacity = capacity; })), Tokenizer::bytes());
    return path;
  };
  RunConfig c = tiny_run(dir_);
  take_architecture(c, folder("falls", {0.25}));
  const std::string message = error_of([&] { trainer_of(c); }).what();
  expect_in(message, (dir_ / "falls").string());
  expect_in(message, "block 1 has a capacity of 1 now, and the first step would cut it to 0.25");
  expect_in(message, "--capacity-anneal 0.5");
  c.train.capacity_anneal = 0.5;
  EXPECT_EQ(trainer_of(c)->step().layer[0].share(), 1);
  c = tiny_run(dir_);
  take_architecture(c, folder("stays", {1}));
  EXPECT_EQ(trainer_of(c)->step().layer[0].share(), 1) << "nothing to fall";
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
