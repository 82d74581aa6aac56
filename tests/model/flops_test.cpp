// Two counts of work: what kernels count equals what the plan says, and model FLOPs equal hand-computed integers
// (invariant 4).
#include "model/flops.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "base/error.h"
#include "base/work.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

int64_t counted(const std::function<void()>& work) {
  executed_multiply_adds = 0;
  work();
  return executed_multiply_adds;
}

class Executed : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(Flops, Executed, ::testing::ValuesIn(tiny_cases()), case_name);

TEST_P(Executed, CountIsWhatTheKernelsCounted) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
    TinyModel model(GetParam().config, limits_for(GetParam().sequences), Purpose::kTrain, 3, {.recompute = recompute});
    const TinyBatch batch(GetParam().sequences, model.config);
    const int64_t forward = counted([&] { model.forward(batch); });
    const ExecutedCount planned = executed_count(model.config, model.acts, batch.view());
    EXPECT_EQ(forward, planned.forward);
    EXPECT_EQ(counted([&] { model.step(batch); }), planned.forward + planned.backward) << name_of(recompute);
  }
}

class ExecutedCausal : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(Flops, ExecutedCausal, ::testing::ValuesIn(tiny_causal_cases()), case_name);

TEST_P(ExecutedCausal, CountIsWhatTheKernelsCounted) {
  TinyModel model(GetParam().config, limits_for(GetParam().sequences), Purpose::kForward);
  const TinyBatch batch(GetParam().sequences, model.config);
  for (const float depth : {-1e30f, 0.0f, 1e30f}) {
    const int64_t forward = counted([&] { model.forward(batch, {.by = SelectBy::kCausal, .depth = depth}); });
    EXPECT_EQ(forward, executed_count(model.config, model.acts, batch.view()).forward) << depth;
  }
}

// T = 64 at 12.5%: routed blocks really run an eighth of the products.
TEST(ExecutedShare, OfARoutedBlockIsItsCapacity) {
  const std::vector<Sequence> sequences = random_sequences({64}, tiny_config().vocab_size);
  ModelConfig config = tiny_routed(0.125, 1);
  config.routing.blocks = {0};
  TinyModel dense(dense_twin(config), limits_for(sequences)), routed(config, limits_for(sequences));
  const TinyBatch batch(sequences, config);
  const int64_t head = 64 * 23 * 20, router = 64 * 20;
  const double share = double(counted([&] { routed.forward(batch); }) - head - router) /
                       double(counted([&] { dense.forward(batch); }) - head);
  EXPECT_LE(share, 0.125);
  EXPECT_GT(share, 0.08);  // attention shrinks faster than the rows
}

// ---- model FLOPs by hand
// ------------------------------------------------------------------------------------------------

ModelConfig hand_sized() {
  ModelConfig c;
  c.vocab_size = 5, c.hidden_size = 4, c.num_attention_heads = 2, c.num_key_value_heads = 1, c.intermediate_size = 3;
  c.num_hidden_layers = 1;
  return c;
}
// Two sequences, of 4 and of 3 rows.
ModelFlops flops_of_seven_rows(ModelConfig c) {
  resolve(c, 4);
  const std::vector<int32_t> begin{0, 4, 7};
  const CI32 runs{begin.data(), {3}};
  return model_flops(c, runs, runs);
}

// D=4 H=2 G=1 K=2 F=3 V=5 L=1, T=4:
//   q 4x4, k 2x4, v 2x4, o 4x4: 48 weights, 2 * 48 = 96 per row        4 rows: 384
//   scores and mix: 2 products * 2 FLOPs * 4*4 pairs * 4 columns         256
//   gate, up, down 3*(3x4): 36 weights, 72 per row                       288
//   head 2 * 4*5 = 40 per row                                            160
TEST(ModelFlops, OfADenseModelByHand) {
  ModelConfig c = hand_sized();
  resolve(c, 4);
  const ModelFlops flops = model_flops(c, 1, 4);
  EXPECT_EQ(flops.section[0].rows, 4);
  EXPECT_EQ(flops.section[0].projections, 384);
  EXPECT_EQ(flops.section[0].attention, 256);
  EXPECT_EQ(flops.section[0].mlp, 288);
  EXPECT_EQ(flops.section[0].router, 0);
  EXPECT_EQ(flops.head, 160);
  EXPECT_EQ(flops.forward(), 1088);
  EXPECT_EQ(flops.training(), 3264);
  EXPECT_EQ(model_flops(c, 3, 4).forward(), 3 * 1088);
  EXPECT_EQ(utilisation_flops(c, 1, 4), 3 * (1088 - 128));  // the causal half of attention
}

// The same block routed at C = 0.5, predictor of width 3; two sequences of 4 and 3 rows: k = 2 and 1.
//   projections 3 * 96 = 288   attention 4 * (4 + 1) * 4 = 80   mlp 3 * 72 = 216
//   router 7 rows * 2*4 = 56   predictor 7 rows * 2*(4*3 + 3) = 210   head 7 * 40 = 280
TEST(ModelFlops, OfARoutedModelByHand) {
  ModelConfig c = hand_sized();
  c.routing.topology = Topology::kJoint;
  c.routing.every = 1;
  c.routing.capacity = {0.5};
  c.routing.causal = Causal::kPredictor;
  c.routing.predictor_width = 3;
  const ModelFlops flops = flops_of_seven_rows(c);
  EXPECT_EQ(flops.section[0].rows, 3);
  EXPECT_EQ(flops.section[0].projections, 288);
  EXPECT_EQ(flops.section[0].attention, 80);
  EXPECT_EQ(flops.section[0].mlp, 216);
  EXPECT_EQ(flops.section[0].router, 266);
  EXPECT_EQ(flops.forward(), 288 + 80 + 216 + 266 + 280);
  c.routing.causal = Causal::kBce;
  EXPECT_EQ(flops_of_seven_rows(c).section[0].router, 56);
  c.routing.causal = Causal::kNone;
  c.routing.router = Router::kRandom;
  EXPECT_EQ(flops_of_seven_rows(c).section[0].router, 0);
}

// The model above with its halves routed apart: the projections and the attention are of one choice, the MLP of
// another, each with a router of its own; and with one half routed the other takes all rows.
//   MLP of 7 rows 504   projections of 7 rows 672, attention 4 * (16 + 9) * 4 = 400
TEST(ModelFlops, OfHalvesOfABlockByHand) {
  ModelConfig c = hand_sized();
  c.routing.every = 1;
  c.routing.capacity = {0.5};
  const auto parts = [&](Topology topology) {
    c.routing.topology = topology;
    const ModelFlops flops = flops_of_seven_rows(c);
    EXPECT_EQ(flops.section.size(), 2u);
    EXPECT_EQ(flops.section[0].mlp + flops.section[1].projections + flops.section[1].attention, 0);
    EXPECT_EQ(flops.forward(), 280 + flops.section[0].total() + flops.section[1].total());
    return std::array{flops.section[0].projections, flops.section[0].attention, flops.section[0].router,
                      flops.section[1].mlp, flops.section[1].router};
  };
  EXPECT_EQ(parts(Topology::kStaggered), (std::array<int64_t, 5>{288, 80, 56, 216, 56}));
  EXPECT_EQ(parts(Topology::kAttention), (std::array<int64_t, 5>{288, 80, 56, 504, 0}));
  EXPECT_EQ(parts(Topology::kMlp), (std::array<int64_t, 5>{672, 400, 0, 216, 56}));
}

// cache = all: queries and outputs of the 2 + 1 chosen rows, keys and values of all 7.
//   q 4x4, o 4x4: 32 weights, 64 per row        3 rows: 192
//   k 2x4, v 2x4: 16 weights, 32 per row        7 rows: 224
//   pairs 2 * 4 + 1 * 3 = 11, 2 products * 2 FLOPs * 11 * 4 columns = 176
//   mlp 3 * 72 = 216   router 7 * 8 = 56   head 280
TEST(ModelFlops, WithTheKeysOfAllRowsByHand) {
  ModelConfig c = hand_sized();
  c.routing.topology = Topology::kJoint;
  c.routing.every = 1;
  c.routing.capacity = {0.5};
  c.routing.cache = KeptKeys::kAll;
  const ModelFlops flops = flops_of_seven_rows(c);
  EXPECT_EQ(flops.section[0].rows, 3);
  EXPECT_EQ(flops.section[0].projections, 192 + 224);
  EXPECT_EQ(flops.section[0].attention, 176);
  EXPECT_EQ(flops.section[0].mlp, 216);
  EXPECT_EQ(flops.section[0].router, 56);
  EXPECT_EQ(flops.forward(), 1144);
  c.routing.topology = Topology::kStaggered;
  const ModelFlops staggered = flops_of_seven_rows(c);
  EXPECT_EQ(staggered.section[0].total(), 192 + 224 + 176 + 56);
  EXPECT_EQ(staggered.section[1].total(), 216 + 56);
}

// Experts of the dense block's MLP, 72 FLOPs for each row that each takes; a router with 4 outputs, 2 * 4*4 = 32 per
// row. Projections of 7 rows 672, attention 400 and head 280, as above: 1352 beside the experts.
//                                        rows of 4       rows of 3      mlp               router
//   two of four                          8               6              14 * 72 = 1008    7 * 32 = 224
//   of which each keeps half             4 of ceil 1     4 of ceil 0.75  8 * 72 = 576     224
//   four that take 0.5, at least one     4 * 2           4 * 1          12 * 72 = 864     224
//   three and a no-op, at the most       4               3               7 * 72 = 504     224
TEST(ModelFlops, OfExpertsByHand) {
  const auto parts = [](const ExpertsConfig& experts) {
    ModelConfig c = hand_sized();
    c.experts = experts;
    const ModelFlops flops = flops_of_seven_rows(c);
    EXPECT_EQ(flops.section[0].projections, 672);
    EXPECT_EQ(flops.section[0].attention, 400);
    EXPECT_EQ(flops.forward(), 1352 + flops.section[0].mlp + flops.section[0].router);
    return std::array{flops.section[0].mlp, flops.section[0].router};
  };
  using Parts = std::array<int64_t, 2>;
  EXPECT_EQ(parts({.experts = 4}), (Parts{1008, 224}));
  EXPECT_EQ(parts({.experts = 4, .capacity_factor = 0.5}), (Parts{576, 224}));
  EXPECT_EQ(parts({.experts = 4, .choice = Choice::kExpert, .capacity = 0.5}), (Parts{864, 224}));
  EXPECT_EQ(parts({.experts = 4, .choice = Choice::kExpert}), (Parts{864, 224}));  // 2 of 4 are a half
  EXPECT_EQ(parts({.experts = 3, .per_token = 1, .no_ops = 1}), (Parts{504, 224}));
  EXPECT_EQ(parts({.experts = 3, .per_token = 1, .no_ops = 1, .no_op_capacity = 0.3}), (Parts{504, 224}));
}

// The same experts in a block that takes 2 + 1 of the rows; each that chooses has then 0.5 of 2 and of 1, at least one.
//   projections 3 * 96 = 288   attention 80   router of the block 7 * 8 = 56, of the experts 3 * 32 = 96
//   two of four 2 * 3 * 72 = 432     four that choose (4 + 4) * 72 = 576
TEST(ModelFlops, OfExpertsInARoutedBlockByHand) {
  ModelConfig c = hand_sized();
  c.routing.topology = Topology::kJoint;
  c.routing.every = 1;
  c.routing.capacity = {0.5};
  c.experts = {.experts = 4};
  const ModelFlops chosen = flops_of_seven_rows(c);
  EXPECT_EQ(chosen.section[0].mlp, 432);
  EXPECT_EQ(chosen.section[0].router, 56 + 96);
  EXPECT_EQ(chosen.forward(), 288 + 80 + 432 + 152 + 280);
  c.experts.choice = Choice::kExpert;
  const ModelFlops choosing = flops_of_seven_rows(c);
  EXPECT_EQ(choosing.section[0].mlp, 576);
  EXPECT_EQ(choosing.section[0].router, 56 + 96);
  c.experts = {.experts = 4};
  c.routing.topology = Topology::kMlp;  // attention of all rows
  const ModelFlops half = flops_of_seven_rows(c);
  EXPECT_EQ(half.section[0].total(), 672 + 400);
  EXPECT_EQ(half.section[1].total(), 432 + 152);
}

// Of 7 rows at C = 0.125 top-k takes one, even spacing none.
TEST(ModelFlops, CountTheRowsThatEachRouterChooses) {
  ModelConfig c = tiny_routed(0.125, 2);
  EXPECT_EQ(chosen_rows(c, c.section(0), 7), 7);
  EXPECT_EQ(chosen_rows(c, c.section(1), 7), 1);
  EXPECT_EQ(chosen_rows(c, c.section(1), 16), 2);
  c.routing.causal = Causal::kNone;
  c.routing.router = Router::kFirst;
  EXPECT_EQ(chosen_rows(c, c.section(1), 7), 1);
  c.routing.router = Router::kSpaced;
  EXPECT_EQ(chosen_rows(c, c.section(1), 7), 0);
  EXPECT_EQ(chosen_rows(c, c.section(1), 17), 2);
  EXPECT_EQ(model_flops(c, 2, 17).section[1].rows, 4);
}

// Attention of a dense block is n*n of each segment, whatever competes for capacity.
TEST(ModelFlops, OfDenseBlocksCountSegments) {
  const ModelConfig c = tiny_config(1);
  const std::vector<int32_t> one{0, 12}, two{0, 5, 12};
  EXPECT_EQ(model_flops(c, {one.data(), {2}}, {two.data(), {3}}).section[0].attention, 4 * (25 + 49) * 24);
}

// MFLOPs per token, forward, of published small runs: bytes, T = 256, heads of 32.
TEST(ModelFlops, OfKnownModels) {
  const auto per_token = [](int64_t D, int64_t L, int64_t F, bool routed) {
    ModelConfig c;
    c.vocab_size = 256, c.hidden_size = D, c.num_hidden_layers = L, c.intermediate_size = F;
    c.num_attention_heads = D / 32;
    if (routed) c.routing.topology = Topology::kJoint;
    resolve(c, 256);
    return double(model_flops(c, 1, 256).forward()) / 256;
  };
  EXPECT_EQ(per_token(64, 3, 176, false), 530432);
  EXPECT_EQ(per_token(96, 4, 256, false), 1327104);
  // Two of four blocks routed at 12.5%, the router's product included.
  EXPECT_EQ(per_token(64, 4, 176, true), 391936);
  EXPECT_EQ(per_token(96, 4, 256, true), 746880);
}

// ---- budgets
// ------------------------------------------------------------------------------------------------------------

TEST(PlanBudget, IsMetWithinATenthOfAPercent) {
  const ModelConfig c = tiny_routed();
  const double per_sequence = double(model_flops(c, 1, 16).training());
  for (const double sequences : {1234.3, 5000.0, 63999.4, 64000.6, 1e6 + 3}) {
    const Budget budget = plan_budget(c, 64, 16, sequences * per_sequence);
    EXPECT_NEAR(budget.flops / (sequences * per_sequence), 1, 1e-3) << sequences;
    const int64_t whole_steps = budget.steps - (budget.last_sequences > 0);
    EXPECT_EQ(budget.flops, double(whole_steps * 64 + budget.last_sequences) * per_sequence) << sequences;
  }
}

TEST(PlanBudget, ShrinksTheLastBatchOfAShortRun) {
  const ModelConfig c = tiny_routed();
  const double per_sequence = double(model_flops(c, 1, 16).training());
  const Budget budget = plan_budget(c, 32, 16, 100 * per_sequence);
  EXPECT_EQ(budget.steps, 4);
  EXPECT_EQ(budget.last_sequences, 4);
  const Budget whole = plan_budget(c, 32, 16, 96 * per_sequence);
  EXPECT_EQ(whole.steps, 3);
  EXPECT_EQ(whole.last_sequences, 0);
  const Budget small = plan_budget(c, 32, 16, 5 * per_sequence);
  EXPECT_EQ(small.steps, 1);
  EXPECT_EQ(small.last_sequences, 5);
  const Budget large = plan_budget(c, 32, 16, 32 * 2000.4 * per_sequence);
  EXPECT_EQ(large.steps, 2000);
  EXPECT_EQ(large.last_sequences, 0);
}

TEST(PlanBudget, RefusesLessThanOneSequence) {
  const ModelConfig c = tiny_routed();
  EXPECT_THROW(plan_budget(c, 32, 16, 0.9 * double(model_flops(c, 1, 16).training())), Error);
}

TEST(PlanBudget, RefusesMoreThanCanBeCounted) {
  const ModelConfig c = tiny_routed();
  const double per_sequence = double(model_flops(c, 1, 16).training());
  for (const double flops :
       {1e30, 1.1e15 * per_sequence, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(plan_budget(c, 32, 16, flops), Error) << flops;
  const Budget most = plan_budget(c, 32, 16, 9e14 * per_sequence);
  EXPECT_GT(most.steps, 0);
  EXPECT_NEAR(double(most.sequences(32)), 9e14, 32);
}

TEST(PlanBudget, CountsTheSequencesOfARun) {
  EXPECT_EQ((Budget{.steps = 4, .last_sequences = 5}.sequences(32)), 3 * 32 + 5);
  EXPECT_EQ((Budget{.steps = 4, .last_sequences = 0}.sequences(32)), 4 * 32);
}

TEST(KvBytes, FollowTheCapacities) {
  EXPECT_EQ(kv_bytes_per_token(tiny_config(4)), 4 * 2 * 12 * 4);
  EXPECT_EQ(kv_bytes_per_token(tiny_routed(0.125, 4)), 2.25 * 2 * 12 * 4);
}

}  // namespace
}  // namespace isobath
