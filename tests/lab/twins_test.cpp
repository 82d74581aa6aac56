#include "lab/twins.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "lab/lab_support.h"

namespace isobath {
namespace {

using testing::TinyLab;

TEST(Twins, AreTheSameModelButForTheRouting) {
  const TwinSetup setup = twin_setup({.data = "text.txt", .out = "out"});
  RunConfig mod = setup.mod;
  mod.model.routing = setup.dense.model.routing;
  mod.train.out = setup.dense.train.out;
  EXPECT_EQ(options_to_json(mod), options_to_json(setup.dense));
  EXPECT_EQ(setup.dense.model.routed_blocks(), 0);
  EXPECT_GT(setup.mod.model.routed_blocks(), 0);
}

TEST(Twins, SpendTheSameFlopsAndTellAllOfThemselves) {
  TinyLab lab;
  constexpr double kFlops = 3e8;
  const Comparison c = lab.compare(kFlops);
  for (const Twin* twin : {&c.dense, &c.mod}) {
    const double sequence = 3 * twin->flops_per_token * double(lab.setup.dense.data.context);
    EXPECT_LE(std::abs(twin->flops - kFlops), std::max(0.001 * kFlops, sequence / 2)) << twin->name;
    EXPECT_FALSE(twin->interrupted);
    EXPECT_EQ(int64_t(twin->training.size()), twin->steps);
    EXPECT_DOUBLE_EQ(twin->training.back().flops, twin->flops);
    EXPECT_GE(twin->validation.size(), 2u);
    EXPECT_DOUBLE_EQ(twin->validation.back().loss, twin->evaluation.top_k.loss);
    EXPECT_EQ(twin->samples.size(), 3u);
    EXPECT_GT(twin->generation_tokens_per_s, 0);
    EXPECT_GT(twin->training_tokens_per_s, 0);
    EXPECT_TRUE(fs::exists(twin->checkpoint / "model.safetensors"));
  }
  EXPECT_LT(c.mod.flops_per_token, c.dense.flops_per_token);
  EXPECT_GT(c.mod.tokens, c.dense.tokens);
  EXPECT_DOUBLE_EQ(c.dense.kv_bytes_measured, c.dense.kv_bytes_planned);
  EXPECT_EQ(c.dense.kv_bytes_planned, 2 * 2 * 16 * 4);  // blocks, k and v, width, fp32
  EXPECT_EQ(c.mod.kv_bytes_planned, (1 + 0.125) * 2 * 16 * 4);
  EXPECT_LT(c.mod.kv_bytes_measured, c.dense.kv_bytes_measured);
  ASSERT_TRUE(c.mod.evaluation.causal.has_value());
  ASSERT_EQ(c.mod.trace.layer.size(), 1u);
  EXPECT_EQ(c.mod.trace.layer[0].section.block, 1);
  EXPECT_TRUE(c.dense.trace.layer.empty());
}

TEST(Twins, ARunReplacesTheOneBefore) {
  TinyLab lab;
  const MachinePeak peak{100, 10, "test", 1, "none"};
  const Twin first = train_twin(lab.setup.mod, 2e7, lab.tokenizer, lab.corpus, peak, {});
  const Twin second = train_twin(lab.setup.mod, 1e7, lab.tokenizer, lab.corpus, peak, {});
  EXPECT_TRUE(fs::exists(second.checkpoint));
  EXPECT_FALSE(fs::exists(first.checkpoint)) << "the longer run's checkpoint is still there";
}

TEST(Twins, StopsWhenAsked) {
  TinyLab lab;
  const Observer observer{.on_step{}, .on_eval{}, .on_save{}, .on_eval_progress{}, .stop = [] { return true; }};
  const Twin twin = train_twin(lab.setup.dense, 1e8, lab.tokenizer, lab.corpus, {100, 10, "test", 1, "none"}, observer);
  EXPECT_TRUE(twin.interrupted);
  EXPECT_TRUE(twin.samples.empty());
}

TEST(Twins, ProbeSharesTheTimeByFlops) {
  TinyLab lab;
  const BudgetProbe probe = probe_budget(lab.setup, lab.tokenizer, lab.corpus, {100, 10, "test", 1, "none"});
  EXPECT_GT(probe.flops, 0);
  EXPECT_NEAR(probe.dense_seconds + probe.mod_seconds, lab.setup.options.seconds, 1e-9);
  EXPECT_NEAR(probe.dense_seconds * probe.dense_flop_s, probe.flops, 1e-6 * probe.flops);
  EXPECT_NEAR(probe.mod_seconds * probe.mod_flop_s, probe.flops, 1e-6 * probe.flops);
}

TEST(Twins, RefuseATextShorterThanAWindow) {
  TinyLab lab;
  lab.corpus = Corpus::load(lab.folder.write("short.txt", testing::tiny_text(1)), lab.tokenizer);
  try {
    probe_budget(lab.setup, lab.tokenizer, lab.corpus, {100, 10, "test", 1, "none"});
    FAIL() << "taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kInput) << "found before work started";
    EXPECT_NE(std::string(error.what()).find("use more text"), std::string::npos);
  }
}

// A comparison that passes, and what turns each verdict.
Comparison passing() {
  Comparison c;
  c.baseline = {3, 2.3, 1.8};
  c.dense.name = "dense";
  c.mod.name = "MoD";
  c.mod.config.model.num_hidden_layers = 2;
  c.mod.config.model.routing.topology = Topology::kJoint;
  c.dense.evaluation.top_k.loss = 1.7;
  c.mod.evaluation.top_k.loss = 1.6;
  c.mod.evaluation.causal = Evaluation{.loss = 1.61, .entropy = 0, .targets = 1, .rows = 1000, .layer{}};
  c.mod.evaluation.causal->layer.push_back(
      {.section = {.index = 1, .block = 1, .routed = true}, .routed = 125, .rows = 1000});
  return c;
}

bool passes(const Comparison& c) {
  bool all = true;
  for (const Verdict& v : judge(c)) all = all && v.passed;
  return all;
}

TEST(Judge, EveryConditionCanFail) {
  EXPECT_TRUE(passes(passing()));
  Comparison c = passing();
  c.dense.evaluation.top_k.loss = 1.81;
  EXPECT_FALSE(passes(c));
  c = passing();
  c.mod.evaluation.top_k.loss = c.mod.evaluation.causal->loss = 1.81;
  EXPECT_FALSE(passes(c));
  c = passing();
  c.mod.evaluation.causal->loss = 1.64;
  EXPECT_FALSE(passes(c));
  c = passing();
  c.mod.evaluation.causal->loss = std::nan("");
  EXPECT_FALSE(passes(c));
  c = passing();
  c.mod.evaluation.causal.reset();
  EXPECT_FALSE(passes(c));
  for (const int64_t routed : {41, 376}) {  // C/3 = 41.67, 3C = 375
    c = passing();
    c.mod.evaluation.causal->layer[0].routed = routed;
    EXPECT_FALSE(passes(c)) << routed;
  }
}

TEST(Judge, QuickAsksForLess) {
  Comparison c = passing();
  c.dense.evaluation.top_k.loss = 2.2;
  EXPECT_FALSE(passes(c));
  c.options.quick = true;
  EXPECT_TRUE(passes(c));
  c.dense.evaluation.top_k.loss = 2.4;
  EXPECT_FALSE(passes(c));
}

TEST(Judge, WinnerIsToldWhateverItIs) {
  Comparison c = passing();
  EXPECT_NE(winner(c).find("MoD"), std::string::npos);
  c.dense.evaluation.top_k.loss = 1.5;
  EXPECT_NE(winner(c).find("the dense model is better"), std::string::npos);
}

}  // namespace
}  // namespace isobath
