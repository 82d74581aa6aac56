// Mixtures of experts that learn, use what their options say, and say what they did.
#include "model/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "expert_shares.h"
#include "support/expert_variants.h"
#include "support/tiny_model.h"
#include "train/evaluate.h"
#include "train/optimizer.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

constexpr int64_t kB = 3, kT = 20;

class ExpertsLearn : public ::testing::TestWithParam<ExpertVariant> {};
INSTANTIATE_TEST_SUITE_P(Variants, ExpertsLearn, ::testing::ValuesIn(kExpertVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExpertsLearn, OneBatchInTwentySteps) {
  ModelConfig config = GetParam().staged ? tiny_routed(0.5) : tiny_config();
  config.experts = GetParam().experts;
  const std::vector<Sequence> sequences = random_sequences(std::vector<int64_t>(kB, kT), config.vocab_size);
  TinyModel model(config, limits_for(sequences));
  initialize(model.weights, 5);
  model.products.pack(model.weights.weights());
  Optimizer optimizer(model.config, {});
  const TinyBatch batch(sequences, model.config);
  std::vector<double> loss;
  for (int64_t step = 1; step <= 20; step++) {
    loss.push_back(model.step(batch, {.step = step}) / double(batch.targets()));
    ASSERT_TRUE(std::isfinite(loss.back())) << step;
    std::vector<LayerExperts> layers;
    add_experts(layers, model.config, model.acts);
    ASSERT_EQ(layers.size(), 3u);
    for (const LayerExperts& l : layers)
      expect_shares_as_configured(l, model.config.experts, model.acts.section[size_t(l.block)].list.rows, kB);
    optimizer.step(model.weights, model.gradient, 3e-3, step);
    model.products.pack(model.weights.weights());
  }
  EXPECT_LT(std::accumulate(loss.end() - 5, loss.end(), 0.0) / 5, 0.9 * loss[0]);
}

// What training does not need of the future, generation does not either: the same choice, and so the same loss.
TEST(Experts, WithoutCapacitiesChooseTheSameCausally) {
  for (const ExpertsConfig& experts :
       {ExpertsConfig{.experts = 4}, ExpertsConfig{.experts = 3, .per_token = 1, .no_ops = 1}}) {
    ModelConfig config = tiny_config();
    config.experts = experts;
    TinyModel model(config, {.sequences = 2, .T = 17}, Purpose::kForward);
    const TinyBatch batch(random_sequences({17, 9}, config.vocab_size), model.config);
    EXPECT_FALSE(model.config.experts_differ());
    EXPECT_EQ(model.forward(batch, {.by = SelectBy::kTopK}), model.forward(batch, {.by = SelectBy::kCausal}));
  }
}

// Depth lets more experts take a row, and fewer rows skip.
TEST(Experts, DepthIsMoreOrLessCompute) {
  for (const ExpertsConfig& experts : {ExpertsConfig{.experts = 3, .choice = Choice::kExpert},
                                       ExpertsConfig{.experts = 3, .per_token = 1, .no_ops = 1}}) {
    ModelConfig config = tiny_config();
    config.experts = experts;
    TinyModel model(config, {.sequences = 1, .T = 30}, Purpose::kForward);
    const TinyBatch batch(random_sequences({30}, config.vocab_size), model.config);
    std::vector<int64_t> assigned;
    for (const float depth : {-1e30f, 0.0f, 1e30f}) {
      EXPECT_TRUE(std::isfinite(model.forward(batch, {.by = SelectBy::kCausal, .depth = depth})));
      assigned.push_back(model.acts.section[1].experts.tally.assigned);
    }
    EXPECT_EQ(assigned[0], 0);
    EXPECT_GT(assigned[1], 0);
    EXPECT_LT(assigned[1], assigned[2]);
    EXPECT_EQ(assigned[2], 30 * (experts.choice == Choice::kExpert ? 3 : 1));
  }
}

// Blocks, or the halves of a block, whose router sends every row the same way.
struct OneWay {
  const char* name;
  Topology topology;
  ExpertsConfig experts;
  size_t busy;  // so many experts, the first ones, get rows
};
const OneWay kOneWay[] = {
    {"OnePerToken", Topology::kDense, {.experts = 3, .per_token = 1}, 1},
    {"TwoPerToken", Topology::kDense, {.experts = 4}, 2},
    {"IntegratedNoOps", Topology::kDense, {.experts = 2, .per_token = 1, .no_ops = 1}, 0},
    {"Staged", Topology::kJoint, {.experts = 3, .per_token = 1}, 1},
    {"StaggeredHalf", Topology::kStaggered, {.experts = 3, .per_token = 1}, 1},
    {"RoutedMlp", Topology::kMlp, {.experts = 4}, 2},
};
class IdleExperts : public ::testing::TestWithParam<OneWay> {
 protected:
  // Equal scores choose the first outputs. Of the no-op, the last output, the logit is above 0 on every row, since all
  // rows are the same.
  static void send_one_way(TinyModel& model, SectionWeights& w, const TinyBatch& same_rows) {
    std::fill_n(w.expert_router.data, w.expert_router.numel(), 0.0f);
    if (GetParam().busy > 0) return;
    float* no_op = w.expert_router.row(w.expert_router.rows() - 1);
    for (int64_t d = 0; d < w.expert_router.cols(); d++) no_op[d] = float(d % 3) - 1;
    model.forward(same_rows);
    if (model.acts.section.back().experts.tally.no_ops > 0) return;
    for (int64_t d = 0; d < w.expert_router.cols(); d++) no_op[d] = -no_op[d];
  }
};
INSTANTIATE_TEST_SUITE_P(Experts, IdleExperts, ::testing::ValuesIn(kOneWay),
                         [](const auto& info) { return std::string(info.param.name); });

// Invariant 14: a zero gradient, not a missing one. The optimizer's moments fade, and weights go on.
TEST_P(IdleExperts, HaveZeroGradients) {
  ModelConfig config = tiny_config(1);
  config.routing.topology = GetParam().topology;
  config.routing.every = 1;
  config.routing.capacity = {0.5};
  config.experts = GetParam().experts;
  config.experts.balance_weight = 0;
  TinyModel model(config, {.sequences = 2, .T = 30});
  Optimizer optimizer(model.config, {});
  const auto step = [&](const TinyBatch& batch, int64_t number) {
    model.step(batch);
    const std::vector<float> gradients = model.gradients();
    optimizer.step(model.weights, model.gradient, 1e-3, number);
    model.products.pack(model.weights.weights());
    return gradients;
  };
  step(TinyBatch(random_sequences({30, 30}, config.vocab_size), model.config), 1);
  const std::vector<Sequence> same{{.id = 0, .documents = {std::vector<int32_t>(20, 7)}}};
  const TinyBatch same_rows(same, model.config);
  send_one_way(model, model.weights.weights().section.back(), same_rows);
  const std::vector<float> weights = values_of(model.weights), first = values_of(optimizer.first);
  const std::vector<float> gradients = step(same_rows, 2);

  size_t at = 0, idle = 0;
  for (size_t i = 0; i < model.weights.list().size(); at += size_t(model.weights.at(i++).numel())) {
    const std::string& name = model.weights.list()[i].name;
    const size_t number = name.find(".experts.");
    if (number == std::string::npos) continue;
    const bool busy = size_t(std::stoi(name.substr(number + 9))) < GetParam().busy;
    const float* g = gradients.data() + at;
    EXPECT_EQ(std::any_of(g, g + model.gradient.at(i).numel(), [](float v) { return v != 0; }), busy) << name;
    if (busy) continue;
    idle++;
    EXPECT_NE(first[at], 0) << name << " had no rows before either";
    EXPECT_FLOAT_EQ(optimizer.first.at(i)[0], 0.9f * first[at]) << name;
    EXPECT_NE(model.weights.at(i)[0], weights[at]) << name;
  }
  EXPECT_EQ(idle, 3 * (size_t(GetParam().experts.experts) - GetParam().busy));
}

// Of lists that go through in several chunks, in one pass or one sequence after the other: the same gradients.
TEST(Experts, TakeListsLongerThanAChunk) {
  ModelConfig config = tiny_config(1);
  config.max_position_embeddings = 420;
  config.experts = {.experts = 2};
  const std::vector<Sequence> sequences = random_sequences({400, 410, 390}, config.vocab_size);
  for (const Storage storage : {Storage::kF32, Storage::kBf16}) {
    TinyModel together(config, limits_for(sequences), Purpose::kTrain, 3, {.storage = storage});
    TinyModel apart(config, limits_for(sequences), Purpose::kTrain, 3, {.storage = storage});
    const TinyBatch all(sequences, together.config);
    together.step(all);
    ASSERT_GT(together.acts.section[0].experts.to.begin[1], 2 * kMlpRows);
    for (const Sequence& s : sequences)
      apart.add_step(TinyBatch({s}, apart.config), {},
                     {.targets = all.targets(), .rows = all.rows(), .runs = all.runs()});
    const std::vector<float> got = together.gradients(), want = apart.gradients();
    float largest = 0;
    for (const float g : want) largest = std::max(largest, std::abs(g));
    for (size_t i = 0; i < got.size(); i++) ASSERT_NEAR(got[i], want[i], 1e-5 * largest) << i;
  }
}

TEST(Experts, ANumberThatIsNotFiniteNamesTheBlock) {
  ModelConfig config = tiny_config(2);
  config.experts = {.experts = 3};
  TinyModel model(config, {.sequences = 1, .T = 6});
  model.weights.weights().section[1].expert_router[3] = NAN;
  const TinyBatch batch(random_sequences({6}, config.vocab_size), model.config);
  const Error error = error_of([&] { model.step(batch); });
  EXPECT_EQ(error.fault(), Fault::kWork);
  expect_in(error.what(), "block 1");
}

TEST(Experts, ARunTellsWhatTheyDid) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  c.model.routing.topology = Topology::kDense;
  c.model.experts = {.experts = 3, .per_token = 1, .capacity_factor = 0.5, .no_ops = 1};
  const Watched w = run_and_watch(c);
  const StepRecord& last = w.steps.back();
  ASSERT_EQ(last.experts.size(), 4u);
  EXPECT_EQ(last.experts[2].rows, 4 * 24);
  EXPECT_GT(last.expert_loss, 0.9);  // 1: the outputs are used evenly
  EXPECT_LT(last.expert_loss, 4);
  ASSERT_TRUE(w.result.final_eval && w.result.final_eval->causal) << "generation drops nothing: the gap is told";
  EXPECT_EQ(w.result.final_eval->causal->experts[0].dropped, 0);
  EXPECT_GT(w.result.final_eval->top_k.experts[0].dropped, 0);
  const std::string metrics = read_file(fs::path(c.train.out) / "metrics.jsonl");
  expect_in(metrics, "\"expert_loss\"");
  expect_in(metrics, "\"no_ops\"");
}

// Saved, loaded, resumed: the same bits as without a stop, with buffers that are made again and in smaller batches of
// the same step.
class ExpertsResume : public ::testing::TestWithParam<ExpertVariant> {};
INSTANTIATE_TEST_SUITE_P(Variants, ExpertsResume, ::testing::ValuesIn(kExpertVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExpertsResume, TenStepsAreSixAndFour) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  c.model.experts = GetParam().experts;
  if (GetParam().staged)
    c.train.capacity_anneal = 0.8;
  else
    c.model.routing.topology = Topology::kDense;
  c.data.micro_batch = 3;
  RunConfig whole_config = c;
  whole_config.train.out = (dir / "whole").string();
  whole_config.train.memory.recompute = Recompute::kBlocks;
  const Watched whole = run_and_watch(whole_config), before = run_and_watch(c, 6);
  const Watched after = run_and_watch(c, -1, before.result.checkpoint);
  ASSERT_EQ(after.steps.size(), 4u);
  for (size_t i = 0; i < 4; i++) {
    const StepRecord &want = whole.steps[6 + i], &got = after.steps[i];
    EXPECT_EQ(got.loss, want.loss) << i;
    EXPECT_EQ(got.norm.model, want.norm.model);
    EXPECT_EQ(got.expert_loss, want.expert_loss);
    for (size_t l = 0; l < want.experts.size(); l++) EXPECT_EQ(got.experts[l].expert_rows, want.experts[l].expert_rows);
  }
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json"})
    EXPECT_EQ(read_file(after.result.checkpoint / file), read_file(whole.result.checkpoint / file)) << file;
  EXPECT_EQ(after.result.final_eval->top_k.loss, whole.result.final_eval->top_k.loss);
}

// ---- what makes no sense

TEST(Experts, RefuseWhatDoesNotGoTogether) {
  const std::pair<const char*, std::function<void(ModelConfig&)>> table[] = {
      {"no experts", [](auto& c) { c.experts.no_ops = 1; }},
      {"no experts", [](auto& c) { c.experts.capacity_factor = 1; }},
      {"plain MLP", [](auto& c) { c.experts = {.experts = 1, .per_token = 1}; }},
      {"expected 1 or 2", [](auto& c) { c.experts = {.experts = 4, .per_token = 3}; }},
      {"experts_per_token = 1", [](auto& c) { c.experts = {.experts = 4, .no_ops = 1}; }},
      {"experts_choice = expert", [](auto& c) { c.experts = {.experts = 4, .capacity = 0.5}; }},
      {"without no-ops", [](auto& c) { c.experts = {.experts = 4, .no_op_capacity = 0.5}; }},
      {"less than 1", [](auto& c) { c.experts = {.experts = 4, .per_token = 1, .no_ops = 1, .no_op_capacity = 1}; }},
      {"skips already",
       [](auto& c) { c.experts = {.experts = 4, .choice = Choice::kExpert, .per_token = 1, .no_ops = 1}; }},
      {"experts_capacity",
       [](auto& c) { c.experts = {.experts = 4, .choice = Choice::kExpert, .capacity_factor = 1}; }},
      {"at most 1", [](auto& c) { c.experts = {.experts = 4, .choice = Choice::kExpert, .capacity = 1.5}; }},
      {"experts_per_token is 0",
       [](auto& c) { c.experts = {.experts = 4, .choice = Choice::kExpert, .per_token = 0}; }},
      {"not built for experts",
       [](auto& c) { c.experts = {.experts = 4, .choice = Choice::kExpert, .causal = Causal::kThreshold}; }},
      {"two routers",
       [](auto& c) {
         c.experts = {.experts = 4, .per_token = 1, .no_ops = 1};
         c.routing.topology = Topology::kJoint;
       }},
      {"at most 256", [](auto& c) { c.experts = {.experts = 300}; }},
      {"0 or more", [](auto& c) { c.experts = {.experts = 4, .balance_weight = -1}; }},
  };
  for (const auto& [word, change] : table) {
    ModelConfig c = tiny_config();
    change(c);
    expect_in(error_of([&] { resolve(c, 8); }).what(), word);
  }
}

}  // namespace
}  // namespace isobath
