// The rules of experts that choose, moved until each takes the share that it should.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "model/names.h"
#include "support/tiny_model.h"
#include "train/calibrate.h"
#include "train/start_from.h"
#include "train/upcycle.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

RunConfig run_of(const TempDir& dir, bool staged) {
  RunConfig run = tiny_run(dir);
  run.model.experts = {.experts = 3, .choice = Choice::kExpert, .capacity = 0.3};
  if (!staged) run.model.routing = {};
  return run;
}

// A model that was trained for a few steps, with offsets of 0.
std::unique_ptr<Model> trained(const RunConfig& run) {
  const auto trainer = trainer_of(run);
  for (int i = 0; i < 5; i++) trainer->step();
  ModelConfig config = trainer->model().config();
  config.routing.router_offset = config.routed_blocks() > 0;
  config.experts.offset = true;
  auto model = std::make_unique<Model>(config);
  copy_weights(model->weights, trainer->model().weights);
  return model;
}

Evaluator evaluator_of(const RunConfig& run, const Model& model) {
  return Evaluator(model.config(), corpus_of(run).train, {.T = 24, .B = 3});
}

F32 offset_of(const Model& model, size_t block) { return model.weights.weights().section[block].expert_offset; }

class CalibratedExpertsOf : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Models, CalibratedExpertsOf, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Staged" : "Plain"; });

TEST_P(CalibratedExpertsOf, TakeTheirSharesAndTheChoiceOfTrainingStays) {
  const TempDir dir;
  const RunConfig run = run_of(dir, GetParam());
  const auto model = trained(run);
  Evaluator evaluator = evaluator_of(run, *model);
  model->prepare(evaluator.rows());
  CalibrationShares shares{.experts = {0.3, 0.1, 0.5, 0.3}};
  if (GetParam()) shares.routed = {0.4, 0.6};
  int64_t passes = 0, of = 0;
  const Calibration c = calibrate(*model, evaluator, shares, 0, [&](int64_t done, int64_t all) {
    passes = done;
    of = all;
  });
  EXPECT_EQ(passes, of);
  ASSERT_EQ(c.experts.size(), 4u);
  ASSERT_EQ(c.layer.size(), shares.routed.size());
  for (size_t i = 0; i < c.layer.size(); i++)
    EXPECT_NEAR(c.layer[i].after, shares.routed[i], 20 / double(c.after.rows));
  for (size_t b = 0; b < 4; b++) {
    EXPECT_EQ(c.experts[b].block, int64_t(b));
    ASSERT_GT(c.experts[b].after.rows, 100);
    for (size_t e = 0; e < 3; e++) {  // rows of equal text before them tie
      EXPECT_NEAR(c.experts[b].after.share(e), shares.experts[b], 20 / double(c.experts[b].after.rows))
          << b << " " << e;
      EXPECT_EQ(c.experts[b].offset[e], offset_of(*model, b)[int64_t(e)]);
      EXPECT_NE(c.experts[b].offset[e], 0);
    }
  }
  EXPECT_EQ(evaluator.run(*model, {.by = SelectBy::kTopK}).loss, c.top_k.loss);
  const Evaluation causal = evaluator.run(*model, {.by = SelectBy::kCausal});
  EXPECT_EQ(causal.loss, c.after.loss);
  EXPECT_NE(c.after.loss, c.before.loss);
  EXPECT_EQ(causal.experts[2].expert_rows, c.experts[2].after.expert_rows);

  // Calibrating again finds the same numbers: what a rule was before does not matter.
  const Calibration again = calibrate(*model, evaluator, shares);
  for (size_t b = 0; b < 4; b++) EXPECT_EQ(again.experts[b].offset, c.experts[b].offset);
}

TEST_P(CalibratedExpertsOf, CanTakeNoRowsOrAllOfAnyTextAndComeBackFromAFile) {
  const TempDir dir;
  const RunConfig run = run_of(dir, GetParam());
  const auto model = trained(run);
  Evaluator evaluator = evaluator_of(run, *model);
  model->prepare(evaluator.rows());
  CalibrationShares shares{.experts = {0, 1, 0.5, 0.25}};
  if (GetParam()) shares.routed = {1, 0};
  const Calibration c = calibrate(*model, evaluator, shares);
  for (size_t e = 0; e < 3; e++) {
    EXPECT_EQ(c.experts[0].after.expert_rows[e], 0);
    EXPECT_EQ(c.experts[1].after.expert_rows[e], c.after.rows);
    EXPECT_EQ(c.experts[0].offset[e], -kInfinity);
    EXPECT_EQ(c.experts[1].offset[e], kInfinity);
    EXPECT_EQ(c.experts[3].offset[e] == 0, GetParam()) << "no row came";
  }
  EXPECT_TRUE(std::isfinite(c.after.loss));

  const fs::path folder = dir / "calibrated";
  fs::create_directories(folder);
  save_model(folder, *model, Tokenizer::bytes());
  Model read(read_config(folder / "config.json"));
  read_start(read.weights, folder);
  EXPECT_EQ(values_of(read.weights), values_of(model->weights));
  read.prepare(evaluator.rows());
  EXPECT_EQ(evaluator.run(read, {.by = SelectBy::kCausal}).loss, c.after.loss);
}

TEST(CalibratedExperts, StayAsTheyAreInTrainingAndUpcycling) {
  const TempDir dir;
  const RunConfig run = run_of(dir, false);
  const auto model = trained(run);
  Evaluator evaluator = evaluator_of(run, *model);
  model->prepare(evaluator.rows());
  calibrate(*model, evaluator, {.experts = {0.3, 0.3, 0.3, 0.3}});
  const fs::path folder = dir / "calibrated";
  fs::create_directories(folder);
  save_model(folder, *model, Tokenizer::bytes());

  RunConfig on = run;
  on.model = {};
  take_architecture(on, folder);
  EXPECT_TRUE(on.model.experts.offset);
  on.train.out = (dir / "on").string();
  const Watched before = run_and_watch(on, 4), whole = run_and_watch([&] {
                                                 RunConfig c = on;
                                                 c.train.out = (dir / "whole").string();
                                                 return c;
                                               }());
  const Watched after = run_and_watch(on, -1, before.result.checkpoint);
  const auto bytes = [](const Watched& w) { return read_file(w.result.checkpoint / "model.safetensors"); };
  EXPECT_EQ(bytes(after), bytes(whole)) << "resumed as if it had not stopped";
  Model trained_on(read_config(after.result.checkpoint / "config.json"));
  read_start(trained_on.weights, after.result.checkpoint);
  RoutingConfig joint;
  joint.topology = Topology::kJoint;
  const auto deeper = upcycle(*model, joint, 1);
  for (size_t b = 0; b < 4; b++)
    for (int64_t e = 0; e < 3; e++) {
      EXPECT_EQ(offset_of(trained_on, b)[e], offset_of(*model, b)[e]) << "training leaves it";
      EXPECT_EQ(offset_of(*deeper, b)[e], offset_of(*model, b)[e]);
    }
  EXPECT_NE(trained_on.weights.weights().norm[0], model->weights.weights().norm[0]);
}

// An offset is a depth of the expert's own; the choice of training and the weights p do not see it.
TEST(ExpertOffset, IsAddedToTheRulesLogit) {
  ModelConfig c = tiny_config(1);
  c.experts = {.experts = 3, .choice = Choice::kExpert};
  TinyModel plain(c, {.sequences = 1, .T = 40}, Purpose::kForward);
  c.experts.offset = true;
  TinyModel moved(c, {.sequences = 1, .T = 40}, Purpose::kForward);
  const TinyBatch batch(random_sequences({40}, c.vocab_size), plain.config);
  const auto begin_of = [](TinyModel& model) {
    const I32 begin = model.acts.section[0].experts.to.begin;
    return std::vector<int32_t>(begin.data, begin.data + begin.numel());
  };
  const F32 offset = moved.weights.weights().section[0].expert_offset;
  for (const float by : {-0.4f, 0.0f, 0.3f}) {
    std::fill_n(offset.data, 3, by);
    const double loss = plain.forward(batch, {.by = SelectBy::kCausal, .depth = by});
    EXPECT_EQ(moved.forward(batch, {.by = SelectBy::kCausal}), loss) << "to the bit";
    EXPECT_EQ(begin_of(moved), begin_of(plain));
    const int64_t chosen = moved.acts.section[0].experts.tally.assigned;
    EXPECT_EQ(moved.forward(batch), plain.forward(batch)) << "top-k does not see the offset";
    EXPECT_EQ(moved.acts.section[0].experts.agreement.said, chosen) << "the report is of the rule as it is";
  }
  const float own[] = {-kInfinity, 0, kInfinity};
  std::copy_n(own, 3, offset.data);
  moved.forward(batch, {.by = SelectBy::kCausal});
  plain.forward(batch, {.by = SelectBy::kCausal});
  const std::vector<int32_t> got = begin_of(moved), without = begin_of(plain);
  EXPECT_EQ(got[1], 0);
  EXPECT_EQ(got[2] - got[1], without[2] - without[1]);
  EXPECT_EQ(got[3] - got[2], 40);
}

TEST(CalibrateExperts, RefusesOtherNumbersOfSharesAndModelsWithoutOffsets) {
  const TempDir dir;
  const RunConfig run = run_of(dir, true);
  const auto model = trained(run);
  Evaluator evaluator = evaluator_of(run, *model);
  const auto says = [&](Model& of, const CalibrationShares& shares, const char* what) {
    expect_in(error_of([&] { calibrate(of, evaluator, shares); }).what(), what);
  };
  says(*model, {.routed = {0.5, 0.5}, .experts = {0.5}}, "1 shares for the experts of 4 blocks");
  says(*model, {.experts = {0.5, 0.5, 0.5, 0.5}}, "0 shares for 2 routers");
  ModelConfig config = model->config();
  config.experts.offset = false;
  Model without(config);
  says(without, {.routed = {0.5, 0.5}, .experts = {0.5, 0.5, 0.5, 0.5}}, "with offsets");
  config.experts = {.experts = 3};
  Model by_token(config);
  says(by_token, {.routed = {0.5, 0.5}, .experts = {0.5, 0.5, 0.5, 0.5}}, "4 shares for the experts of 0 blocks");
}

}  // namespace
}  // namespace isobath
