// What a run spends of each kind of budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "model/plan_table.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

// One block of width 8 and eight tokens a sequence: a step takes no time.
RunConfig smallest(const TempDir& dir, bool routed) {
  RunConfig c = tiny_run(dir, 40);
  c.model.hidden_size = 8;
  c.model.intermediate_size = 8;
  c.model.num_hidden_layers = 2;
  if (!routed) c.model.routing.topology = Topology::kDense;
  c.data.context = 8;
  c.data.batch = 4;
  c.data.micro_batch = 3;
  c.train.steps = 0;
  return c;
}

struct Spent {
  int64_t steps = 0;
  double flops = 0;
  int64_t tokens = 0;
};
Spent spent_by(const RunConfig& c) {
  const auto trainer = trainer_of(c);
  while (trainer->steps_done() < trainer->budget().steps) trainer->step();
  const StepRecord last = trainer->run({}).last;
  EXPECT_EQ(last.flops, trainer->budget().flops);  // as planned
  EXPECT_EQ(last.steps, trainer->budget().steps);
  return {last.step, last.flops, last.tokens};
}

TEST(Budget, of_flops_is_spent_within_a_tenth_of_a_percent) {
  for (const bool routed : {false, true})
    for (const double sequences : {1.0, 3.0, 4.0, 511.3, 512.5, 4 * 1000.4}) {
      const TempDir dir;
      RunConfig c = smallest(dir, routed);
      ModelConfig model = resolved(
                              [&] {
                                auto r = c;
                                r.train.steps = 1;
                                return r;
                              }(),
                              Tokenizer::bytes())
                              .model;
      const double per_sequence = double(model_flops(model, 1, c.data.context).training());
      c.train.flops = sequences * per_sequence;
      const Spent spent = spent_by(c);
      EXPECT_LE(std::abs(spent.flops - c.train.flops), std::max(1e-3 * c.train.flops, 0.5 * per_sequence));
      EXPECT_NEAR(spent.flops / per_sequence, double(spent.tokens) / 8, 1e-6);
    }
}

TEST(Budget, of_steps_and_tokens) {
  const TempDir dir;
  RunConfig c = smallest(dir, true);
  c.train.steps = 7;
  Spent spent = spent_by(c);
  EXPECT_EQ(spent.steps, 7);
  EXPECT_EQ(spent.tokens, 7 * 4 * 8);
  c.train.out = (dir / "tokens").string();
  c.train.steps = 0;
  c.train.tokens = 8 * 11;  // two steps and three sequences
  spent = spent_by(c);
  EXPECT_EQ(spent.steps, 3);
  EXPECT_EQ(spent.tokens, 8 * 11);
}

// Early steps at capacity 1 cost more: the sum over the steps is what is planned, and what is spent.
TEST(Budget, of_a_run_whose_capacity_is_annealed) {
  for (const double anneal : {0.5, 7.0}) {
    const TempDir dir;
    RunConfig c = smallest(dir, true);
    c.train.capacity_anneal = anneal;
    c.train.steps = 20;
    const Spent by_steps = spent_by(c);
    EXPECT_EQ(by_steps.steps, 20);
    c.train.steps = 0;
    c.train.flops = by_steps.flops;
    c.train.out = (dir / "flops").string();
    const Spent by_flops = spent_by(c);
    EXPECT_EQ(by_flops.steps, 20);
    EXPECT_EQ(by_flops.flops, by_steps.flops);
    c.train.flops = 0;
    c.train.tokens = 20 * 4 * 8 - 8;
    c.train.out = (dir / "tokens").string();
    EXPECT_EQ(spent_by(c).tokens, c.train.tokens);
  }
}

TEST(Budget, below_one_sequence_is_refused) {
  const TempDir dir;
  RunConfig c = smallest(dir, true);
  c.train.tokens = 7;
  expect_in(error_of([&] { trainer_of(c); }).what(), "7 tokens is less than one sequence of 8");
  c.train.tokens = 0;
  c.train.flops = 1000;
  expect_in(error_of([&] { trainer_of(c); }).what(), "less than one sequence");
}

// What the banner says and what `isobath plan` says.
TEST(Trainer, plans_the_bytes_of_the_plan_table) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  c.data.micro_batch = 2;
  for (const Topology topology : {Topology::kDense, Topology::kJoint})
    for (const MemoryOptions& memory :
         {MemoryOptions(),
          MemoryOptions{.recompute = Recompute::kBlocks, .storage = Storage::kBf16, .packing = Packing::kProduct}}) {
      c.model.routing.topology = topology;
      c.train.memory = memory;
      const auto trainer = trainer_of(c);
      const ModelConfig& model = trainer->config().model;
      EXPECT_EQ(trainer->planned_bytes(),
                plan_table(model, {.sequences = 2, .T = c.data.context}, c.train.memory).training_bytes());
    }
}

}  // namespace
}  // namespace isobath
