// Shapes and rates that follow from rules, and the studies of the repository: each must be a list of runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "lab/shapes.h"
#include "lab/study.h"
#include "lab/study_after.h"
#include "model/flops.h"
#include "model/weights.h"
#include "train/train_support.h"

namespace isobath {
namespace {

using testing::error_of;
using testing::expect_in;
using testing::TempDir;

ModelConfig base() {
  ModelConfig c;
  c.vocab_size = 257;
  c.hidden_size = 64;
  c.num_hidden_layers = 6;
  c.num_attention_heads = 2;
  return c;
}
int64_t parameters_of(ModelConfig c) {
  resolve(c, 16);
  return count_weights(c);
}
double flops_of(ModelConfig c, int64_t T) {
  resolve(c, T);
  return double(model_flops(c, 1, T).forward());
}

TEST(Shapes, parameters_are_near_and_proportions_kept) {
  int64_t before = 0;
  for (const double want : {5e5, 1e6, 2e6, 8e6, 1e8, 1e9}) {
    const ModelConfig shape = shape_of_parameters(base(), want);
    EXPECT_NEAR(double(parameters_of(shape)) / want, 1, 0.15) << want;
    EXPECT_EQ(shape.hidden_size / shape.num_attention_heads, 32) << "the head size of the base";
    EXPECT_LE(std::abs(std::log(double(shape.hidden_size) / double(shape.num_hidden_layers) / (64.0 / 6))),
              std::log(2.0));
    EXPECT_GT(parameters_of(shape), before);
    before = parameters_of(shape);
  }
  EXPECT_EQ(parameters_of(shape_of_parameters(base(), double(parameters_of(base())))), parameters_of(base()));
  EXPECT_THROW(shape_of_parameters(base(), 1000), Error);
}

TEST(Shapes, depth_is_the_nearest_in_flops) {
  ModelConfig routed = base();
  routed.routing.topology = Topology::kJoint;
  const double want = flops_of(base(), 256);
  const ModelConfig found = depth_of_flops(routed, 256, want);
  EXPECT_GT(found.num_hidden_layers, 6);
  for (const int64_t other : {found.num_hidden_layers - 1, found.num_hidden_layers + 1}) {
    ModelConfig c = found;
    c.num_hidden_layers = other;
    EXPECT_GE(std::abs(std::log(flops_of(c, 256) / want)), std::abs(std::log(flops_of(found, 256) / want)));
  }
  EXPECT_EQ(depth_of_flops(base(), 256, want).num_hidden_layers, 6);
  routed.routing.blocks = {1};
  EXPECT_THROW(depth_of_flops(routed, 256, want), Error);
}

nlohmann::json record(const std::string& variant, int64_t width, double rate, double loss, bool dense, int seed = 1) {
  return {{"recipe", fmt::format("{} {} {}", variant, width, rate)},
          {"variant", variant},
          {"size", ""},
          {"grid", nlohmann::json::object()},
          {"run", "0"},
          {"seed", seed},
          {"budget", 1e12},
          {"flops_per_token", dense ? 4e5 : 2e5},
          {"dense_flops_per_token", 4e5},
          {"parameters", 1000 * width},
          {"changed",
           {{"model", {{"hidden_size", width}, {"num_hidden_layers", 3}}}, {"train", {{"learning_rate", rate}}}}},
          {"top_k", {{"loss", loss}}}};
}

TEST(After, the_best_by_the_mean_of_its_seeds) {
  const std::vector<nlohmann::json> records{
      record("dense", 32, 1e-3, 2.0, true),    record("dense", 48, 1e-3, 1.5, true),
      record("dense", 48, 1e-3, 2.9, true, 2), record("joint", 32, 1e-3, 1.0, false),
      record("joint", 32, 2e-3, 0.9, false),   record("joint", 48, 4e-3, 0.1, false)};
  EXPECT_EQ(best_dense(records, 1e12)["recipe"], "dense 32 0.001");
  EXPECT_EQ(best_rate(records, 1e12, 32, "joint"), 2e-3);
  EXPECT_EQ(best_rate(records, 1e12, 48, "joint"), 4e-3);
  expect_in(error_of([&] { best_dense(records, 2e12); }).what(), "--after");
  expect_in(error_of([&] { best_rate(records, 1e12, 64, "joint"); }).what(), "width 64");
  RunConfig c;
  c.model.num_attention_heads = 7;
  c.model.routing.every = 3;
  take_model(c, records[1]);
  EXPECT_EQ(c.model.num_attention_heads, ModelConfig().num_attention_heads) << "what a record does not name is default";
  EXPECT_EQ(c.model.routing.every, 3);
  EXPECT_EQ(c.model.hidden_size, 48);
  EXPECT_EQ(c.model.num_hidden_layers, 3);
}

TEST(After, the_rate_is_of_the_nearest_budget) {
  std::vector<nlohmann::json> records{record("dense", 32, 8e-3, 2.0, true), record("dense", 32, 4e-3, 2.1, true),
                                      record("dense", 32, 8e-3, 1.6, true), record("dense", 32, 4e-3, 1.5, true)};
  for (size_t i = 2; i < 4; i++) {
    records[i]["budget"] = 1e13;
    records[i]["recipe"] = records[i]["recipe"].get<std::string>() + ", longer";
  }
  EXPECT_EQ(best_rate(records, 1e12, 32, "dense"), 8e-3) << "not the lowest loss of all budgets";
  EXPECT_EQ(best_rate(records, 1e13, 32, "dense"), 4e-3);
  EXPECT_EQ(best_rate(records, 3e12, 32, "dense"), 8e-3) << "3 times and 3.3 times";
  EXPECT_EQ(best_rate(records, 1e15, 32, "dense"), 4e-3);
}

TEST(After, a_study_takes_width_flops_and_rate_from_it) {
  const TempDir dir;
  Study study =
      read_study(dir.write("s.toml",
                           "[study]\nflops = 1e12\nlearning_rates = \"best\"\n[data]\ncontext = 64\n"
                           "[[variant]]\nname = \"joint\"\nrouting.topology = \"joint\"\nflops_as = \"best dense\"\n"));
  expect_in(error_of([&] { plan_study(study, Tokenizer::bytes()); }).what(), "--after");
  study.after = {record("dense", 32, 1e-3, 2.0, true), record("joint", 32, 3e-3, 1.0, false)};
  const auto runs = plan_study(study, Tokenizer::bytes());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].config.model.hidden_size, 32);
  EXPECT_EQ(runs[0].config.train.learning_rate, 3e-3);
  EXPECT_NEAR(std::log(runs[0].flops_per_token / 4e5), 0, 0.2);
}

// A sweep of all of them would take years; a plan takes a moment and has the budgets of the real ones.
TEST(Studies, every_study_of_the_repository_is_a_list_of_runs) {
  const char* folder = std::getenv("ISOBATH_STUDIES");
  if (folder == nullptr) GTEST_SKIP() << "ISOBATH_STUDIES does not name the folder";
  int64_t studies = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().string());
    Study study = read_study(entry.path());
    for (const double flops : study.budgets) {
      study.after.push_back(record("dense", 64, 1e-3, 1, true));
      study.after.back()["recipe"] = fmt::format("{}", flops);
      study.after.back()["budget"] = flops;
      study.after.back()["changed"]["model"] = {{"hidden_size", 64}, {"num_hidden_layers", 6}};
      study.after.back()["flops_per_token"] = study.after.back()["dense_flops_per_token"] =
          flops_of(base(), study.base.data.context) / double(study.base.data.context);
    }
    if (study.best_rates) {
      Study given = study;
      given.best_rates = false;
      for (const PlannedRun& run : plan_study(given, Tokenizer::bytes()))
        study.after.push_back(record(run.variant, run.config.model.hidden_size, 1e-3, 1, false));
    }
    EXPECT_FALSE(study.title.empty());
    const auto runs = plan_study(study, Tokenizer::bytes());
    EXPECT_GE(runs.size(), study.seeds.size() * study.budgets.size());
    const bool short_one = entry.path().stem().string().ends_with("minutes");
    for (const PlannedRun& run : runs)
      EXPECT_NEAR((study.in_tokens ? double(run.tokens()) : run.budget.flops) / run.asked(), 1, short_one ? 0.02 : 1e-3)
          << run.label();
    studies++;
  }
  EXPECT_GE(studies, 28);
}

}  // namespace
}  // namespace isobath
