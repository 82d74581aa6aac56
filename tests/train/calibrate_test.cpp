// The causal rule of a trained model, moved until it routes the share that it should.
#include "train/calibrate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/names.h"
#include "train/start_from.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t above(const std::vector<float>& logits, float offset) {
  return std::count_if(logits.begin(), logits.end(), [&](float z) { return z + offset > 0; });
}

TEST(OffsetForShare, routes_the_nearest_count) {
  std::vector<float> logits;
  const Rng rng(3, Stream::kBench);
  for (int i = 0; i < 1000; i++) logits.push_back(3 + rng.normal(uint64_t(i)));
  for (const double share : {0.001, 0.125, 0.5, 0.999})
    EXPECT_EQ(above(logits, offset_for_share(logits, share)), std::llround(share * 1000)) << share;
  EXPECT_EQ(above(logits, offset_for_share(logits, 0.0001)), 0);
  EXPECT_EQ(above(logits, offset_for_share(logits, 0.9999)), 1000);
}

TEST(OffsetForShare, of_none_and_all_holds_for_any_text) {
  EXPECT_EQ(offset_for_share({1, 2}, 0), -kInfinity);
  EXPECT_EQ(offset_for_share({1, 2}, 1), kInfinity);
}

TEST(OffsetForShare, keeps_ties_together) {
  const std::vector<float> logits{5, 4, 4, 4, 1, 0, -1, -1, -1, -1};
  EXPECT_EQ(above(logits, offset_for_share(logits, 0.2)), 1);  // one tied row above: nearer than three
  EXPECT_EQ(above(logits, offset_for_share(logits, 0.3)), 4);
  EXPECT_EQ(above(logits, offset_for_share(logits, 0.9)), 10);
  EXPECT_EQ(above({2, 2, 2}, offset_for_share({2, 2, 2}, 0.4)), 0);
  EXPECT_EQ(above({2, 2, 2}, offset_for_share({2, 2, 2}, 0.7)), 3);
}

TEST(OffsetForShare, parts_neighbours_of_fp32) {
  const float a = 1.0f, b = std::nextafter(a, 2.0f);
  EXPECT_EQ(above({a, b}, offset_for_share({a, b}, 0.5)), 1);
  EXPECT_EQ(above({-a, -b}, offset_for_share({-a, -b}, 0.5)), 1);
}

class Calibrated : public ::testing::TestWithParam<Causal> {};
INSTANTIATE_TEST_SUITE_P(Rules, Calibrated,
                         ::testing::Values(Causal::kBce, Causal::kPredictor, Causal::kThreshold, Causal::kNone),
                         [](const auto& info) { return info.param == Causal::kNone ? "random" : name_of(info.param); });

TEST_P(Calibrated, shares_are_the_targets_and_top_k_stays) {
  const TempDir dir;
  RunConfig run = tiny_run(dir);
  run.model.routing.causal = GetParam();
  if (GetParam() == Causal::kNone) run.model.routing.router = Router::kRandom;
  const auto trainer = trainer_of(run);
  for (int i = 0; i < 5; i++) trainer->step();

  ModelConfig config = trainer->model().config();
  config.routing.router_offset = true;
  Model model(config);
  copy_weights(model.weights, trainer->model().weights);
  Evaluator evaluator(config, corpus_of(run).train, {.T = 24, .B = 3});
  model.prepare(evaluator.rows());
  const std::vector<double> shares{0.4, 0.1};
  const Calibration c = calibrate(model, evaluator, {.routed = shares});
  ASSERT_EQ(c.layer.size(), 2u);
  const double rows = double(c.after.rows);
  for (size_t i = 0; i < 2; i++) {
    EXPECT_EQ(c.layer[i].section.block, int64_t(2 * i + 1));
    EXPECT_NEAR(c.layer[i].after, shares[i], 20 / rows);  // rows of equal text before them tie
    EXPECT_EQ(c.layer[i].before, c.before.layer[i].share());
    EXPECT_NE(model.weights.weights().section[size_t(2 * i + 1)].router.offset[0], 0);
  }
  EXPECT_EQ(evaluator.run(model, {.by = SelectBy::kTopK}).loss, c.top_k.loss);
  EXPECT_EQ(evaluator.run(model, {.by = SelectBy::kCausal}).loss, c.after.loss);
  EXPECT_NE(c.after.loss, c.before.loss);

  // Calibrating again finds the same numbers: what a layer was before does not matter.
  const Calibration again = calibrate(model, evaluator, {.routed = shares});
  for (size_t i = 0; i < 2; i++) EXPECT_EQ(again.layer[i].offset, c.layer[i].offset);

  const Calibration ends = calibrate(model, evaluator, {.routed = {0, 1}});
  EXPECT_EQ(ends.layer[0].after, 0);
  EXPECT_EQ(ends.layer[1].after, 1);
  EXPECT_TRUE(std::isfinite(ends.after.loss));

  // Offsets for no row and for all are infinite, and come back from a file.
  const fs::path folder = dir / "ends";
  fs::create_directories(folder);
  save_model(folder, model, Tokenizer::bytes());
  Model read(read_config(folder / "config.json"));
  read_start(read.weights, folder);
  EXPECT_EQ(read.weights.weights().section[1].router.offset[0], -kInfinity);
  EXPECT_EQ(read.weights.weights().section[3].router.offset[0], kInfinity);
  read.prepare(evaluator.rows());
  EXPECT_EQ(evaluator.run(read, {.by = SelectBy::kCausal}).loss, ends.after.loss);
}

TEST(Calibrate, refuses_other_numbers_of_shares) {
  const TempDir dir;
  const RunConfig run = tiny_run(dir);
  const auto trainer = trainer_of(run);
  ModelConfig config = trainer->model().config();
  config.routing.router_offset = true;
  Model model(config);
  Evaluator evaluator(config, corpus_of(run).train, {.T = 24, .B = 3});
  expect_in(error_of([&] { calibrate(model, evaluator, {.routed = {0.5}}); }).what(), "1 shares for 2 routers");
}

}  // namespace
}  // namespace isobath
