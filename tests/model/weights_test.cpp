// The list of weights: names, places, start values, and reading by name.
#include "model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "model/names.h"
#include "support/compare.h"
#include "support/tiny_model.h"

namespace isobath {
namespace {

using namespace isobath::testing;

ModelConfig with_predictor() {
  ModelConfig c = tiny_routed(0.5, 2);
  c.routing.causal = Causal::kPredictor;
  c.routing.predictor_width = 3;
  c.routing.router_bias = true;
  return c;
}

TEST(Weights, AreNamedAsInTheFiles) {
  const std::vector<std::pair<std::string, Shape>> want{
      {"model.embed_tokens.weight", {23, 20}},
      {"model.layers.0.input_layernorm.weight", {20}},
      {"model.layers.0.self_attn.q_proj.weight", {24, 20}},
      {"model.layers.0.self_attn.k_proj.weight", {12, 20}},
      {"model.layers.0.self_attn.v_proj.weight", {12, 20}},
      {"model.layers.0.self_attn.o_proj.weight", {20, 24}},
      {"model.layers.0.post_attention_layernorm.weight", {20}},
      {"model.layers.0.mlp.gate_proj.weight", {28, 20}},
      {"model.layers.0.mlp.up_proj.weight", {28, 20}},
      {"model.layers.0.mlp.down_proj.weight", {20, 28}},
      {"model.layers.1.input_layernorm.weight", {20}},
      {"model.layers.1.self_attn.q_proj.weight", {24, 20}},
      {"model.layers.1.self_attn.k_proj.weight", {12, 20}},
      {"model.layers.1.self_attn.v_proj.weight", {12, 20}},
      {"model.layers.1.self_attn.o_proj.weight", {20, 24}},
      {"model.layers.1.post_attention_layernorm.weight", {20}},
      {"model.layers.1.mlp.gate_proj.weight", {28, 20}},
      {"model.layers.1.mlp.up_proj.weight", {28, 20}},
      {"model.layers.1.mlp.down_proj.weight", {20, 28}},
      {"model.layers.1.router.weight", {20}},
      {"model.layers.1.router.bias", {1}},
      {"model.layers.1.predictor.fc1.weight", {3, 20}},
      {"model.layers.1.predictor.fc1.bias", {3}},
      {"model.layers.1.predictor.fc2.weight", {1, 3}},
      {"model.layers.1.predictor.fc2.bias", {1}},
      {"model.norm.weight", {20}},
      {"lm_head.weight", {23, 20}},
  };
  const WeightSet set(with_predictor());
  ASSERT_EQ(set.list().size(), want.size());
  int64_t numel = 0;
  for (size_t i = 0; i < want.size(); i++) {
    EXPECT_EQ(set.list()[i].name, want[i].first);
    EXPECT_EQ(set.list()[i].shape, want[i].second) << want[i].first;
    numel += want[i].second.numel();
  }
  EXPECT_EQ(set.numel(), numel);
  EXPECT_EQ(count_weights(with_predictor()), numel);
  EXPECT_GE(set.bytes(), 4 * numel);
}

TEST(Weights, OfRulesAreNotTrainedAndStartAtZero) {
  ModelConfig c = tiny_routed(0.5, 2);
  c.routing.causal = Causal::kThreshold;
  c.routing.router_offset = true;
  WeightSet set(c);
  fill(set, 99);
  initialize(set, 1);
  std::vector<std::string> untrained;
  for (size_t i = 0; i < set.list().size(); i++) {
    if (is_trained(set.list()[i].kind)) continue;
    untrained.push_back(set.list()[i].name);
    EXPECT_EQ(set.at(i).shape, Shape{1});
    EXPECT_EQ(set.at(i)[0], 0);
  }
  EXPECT_EQ(untrained, (std::vector<std::string>{"model.layers.1.router.offset", "model.layers.1.router.threshold"}));
}

TEST(Weights, OffsetsOfExpertsAreThereOnlyAfterCalibration) {
  ModelConfig c = tiny_config(2);
  c.experts = {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4};
  const int64_t without = count_weights(c);
  EXPECT_FALSE(to_json(c)["mixture_of_depths"]["experts"].contains("experts_offset"));
  c.experts.offset = true;
  EXPECT_EQ(count_weights(c), without + 2 * 3);
  EXPECT_TRUE(config_from_json(to_json(c), "config.json").experts.offset);
  WeightSet set(c);
  fill(set, 99);
  initialize(set, 1);
  for (int64_t l = 0; l < 2; l++) {
    const F32 offset = set.weights().section[size_t(l)].expert_offset;
    EXPECT_EQ(set.name_of(set.weights().section[size_t(l)].expert_offset),
              "model.layers." + std::to_string(l) + ".block_sparse_moe.gate.offset");
    EXPECT_EQ(offset.shape, Shape{3});
    for (int64_t e = 0; e < 3; e++) EXPECT_EQ(offset[e], 0);
  }
}

TEST(Weights, ATiedModelHasNoHead) {
  ModelConfig c = tiny_config(1);
  c.tie_word_embeddings = true;
  const WeightSet set(c);
  EXPECT_EQ(set.list().back().name, "model.norm.weight");
  EXPECT_EQ(set.weights().output_head().data, set.weights().embed.data);
}

TEST(Weights, NeighboursAreOneMatrix) {
  const WeightSet set(tiny_config(1));
  const SectionWeights& b = set.weights().section[0];
  EXPECT_EQ(b.k.data, b.q.data + b.q.numel());
  EXPECT_EQ(b.v.data, b.k.data + b.k.numel());
  EXPECT_EQ(b.up.data, b.gate.data + b.gate.numel());
  EXPECT_EQ(b.qkv().shape, (Shape{48, 20}));
  EXPECT_EQ(b.gate_up().shape, (Shape{56, 20}));
}

TEST(Weights, OfMatricesDecayAndNoOthers) {
  const WeightSet set(with_predictor());
  for (const WeightInfo& info : set.list()) {
    const bool projection = info.name.find("_proj") != std::string::npos || info.name == "lm_head.weight";
    EXPECT_EQ(decays(info.kind), projection) << info.name;
    EXPECT_EQ(is_predictor(info.kind), info.name.find("predictor") != std::string::npos) << info.name;
  }
}

// Routers of halves stand under the name of the half; all other names are the same whatever the topology.
TEST(Weights, OfHalvesHaveTheNamesOfTheirBlock) {
  const auto names = [](Topology topology) {
    ModelConfig c = tiny_routed();
    c.routing.topology = topology;
    c.routing.router_bias = true;
    std::vector<std::string> routers;
    const WeightSet set(c, Allocate::kNo);
    for (const WeightInfo& info : set.list())
      if (info.kind == Kind::kRouter) routers.push_back(info.name);
    return routers;
  };
  const std::string block = "model.layers.1.";
  EXPECT_EQ(names(Topology::kJoint), (std::vector{block + "router.weight", block + "router.bias"}));
  EXPECT_EQ(names(Topology::kStaggered),
            (std::vector{block + "self_attn.router.weight", block + "self_attn.router.bias",
                         block + "mlp.router.weight", block + "mlp.router.bias"}));
  EXPECT_EQ(names(Topology::kAttention),
            (std::vector{block + "self_attn.router.weight", block + "self_attn.router.bias"}));
  EXPECT_EQ(names(Topology::kMlp), (std::vector{block + "mlp.router.weight", block + "mlp.router.bias"}));
}

TEST(Weights, KnowTheirBlockAndWhatTheyAre) {
  const WeightSet set(with_predictor());
  for (const WeightInfo& info : set.list()) {
    const bool in_0 = info.name.starts_with("model.layers.0."), in_1 = info.name.starts_with("model.layers.1.");
    EXPECT_EQ(info.section, in_0 ? 0 : in_1 ? 1 : -1) << info.name;
    EXPECT_EQ(info.bias, info.name.ends_with("bias")) << info.name;
  }
}

TEST(Weights, ArePlannedWithoutMemory) {
  WeightSet planned(with_predictor(), Allocate::kNo);
  const WeightSet made(with_predictor());
  EXPECT_EQ(planned.bytes(), made.bytes());
  EXPECT_EQ(planned.numel(), made.numel());
  EXPECT_TRUE(planned.weights().embed.empty());
}

// Room for one block, in one direction at a time: another block adds nothing.
TEST(Products, ThatPackBeforeAProductHaveRoomForOneBlock) {
  const auto bytes = [](int64_t L, Packing packing) {
    return Products(tiny_config(L),
                    {.max_rows = 40, .exact = {}, .head_rows = 40, .backward = true, .packing = packing}, Allocate::kNo)
        .bytes();
  };
  EXPECT_EQ(bytes(2, Packing::kProduct), bytes(20, Packing::kProduct));
  EXPECT_LT(bytes(2, Packing::kProduct), bytes(1, Packing::kStep));
}

TEST(Products, OfAnotherBlockAddItsPackedWeightsAndNoScratch) {
  const auto bytes = [](int64_t L) {
    return Products(tiny_config(L), {.max_rows = 40, .exact = {}, .head_rows = 40, .backward = true}, Allocate::kNo)
        .bytes();
  };
  Plan block;
  Linear qkv, o, gate_up, down;
  for (const auto& [linear, N, K] : {std::tuple(&qkv, 48, 20), {&o, 20, 24}, {&gate_up, 56, 20}, {&down, 20, 28}})
    linear->plan(block, "block", {.N = N, .K = K, .max_rows = 40, .exact = {}, .backward = true});
  EXPECT_EQ(bytes(5) - bytes(4), block.scratch_offset());
}

// ---- start values
// -------------------------------------------------------------------------------------------------------

// Design section 3.8.
double wanted_deviation(const std::string& name, const ModelConfig& c) {
  const double D = double(c.hidden_size), L = double(c.num_hidden_layers);
  if (name.ends_with("layernorm.weight") || name == "model.norm.weight" || name.ends_with("bias")) return 0;
  if (name.ends_with("router.weight")) return 0.02;
  if (name.ends_with("o_proj.weight")) return 1 / std::sqrt(double(c.heads().q_cols())) / std::sqrt(2 * L);
  if (name.ends_with("down_proj.weight")) return 1 / std::sqrt(double(c.intermediate_size)) / std::sqrt(2 * L);
  if (name.ends_with("fc2.weight")) return 1 / std::sqrt(double(c.predictor_width()));
  return 1 / std::sqrt(D);
}

TEST(StartValues, HaveTheirDeviations) {
  ModelConfig c = with_predictor();
  c.hidden_size = 256, c.intermediate_size = 320, c.vocab_size = 300, c.routing.predictor_width = 64;
  WeightSet set(c);
  fill(set, 99);
  initialize(set, 1);
  for (size_t i = 0; i < set.list().size(); i++) {
    const std::string& name = set.list()[i].name;
    const double n = double(set.at(i).numel()), want = wanted_deviation(name, c);
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < set.at(i).numel(); j++) {
      sum += double(set.at(i)[j]);
      squares += double(set.at(i)[j]) * double(set.at(i)[j]);
    }
    const double mean = name.ends_with("norm.weight") ? 1 : 0;
    const double deviation = std::sqrt(std::max(0.0, squares / n - sum / n * sum / n));
    EXPECT_NEAR(sum / n, mean, 4.5 * want / std::sqrt(n)) << name;
    EXPECT_NEAR(deviation, want, 4.5 * want / std::sqrt(2 * n)) << name;
  }
}

TEST(StartValues, OfAWeightDependOnSeedAndNameAlone) {
  WeightSet plain(tiny_routed()), more([] {
    ModelConfig c = tiny_routed();
    c.routing.causal = Causal::kPredictor;
    c.routing.router_bias = true;
    c.tie_word_embeddings = false;
    return c;
  }());
  initialize(plain, 7);
  initialize(more, 7);
  std::map<std::string, F32> by_name;
  for (size_t i = 0; i < more.list().size(); i++) by_name[more.list()[i].name] = more.at(i);
  EXPECT_GT(more.list().size(), plain.list().size());
  for (size_t i = 0; i < plain.list().size(); i++)
    expect_same_bits(plain.at(i).data, by_name.at(plain.list()[i].name).data, plain.at(i).numel(),
                     plain.list()[i].name.c_str());
  const std::vector<float> before(more.at(0).data, more.at(0).data + more.at(0).numel());
  initialize(more, 8);
  EXPECT_FALSE(std::equal(before.begin(), before.end(), more.at(0).data));
  // Two tensors of one shape are not copies of each other.
  const SectionWeights& b = plain.weights().section[0];
  EXPECT_FALSE(std::equal(b.gate.data, b.gate.data + b.gate.numel(), b.up.data));
}

// ---- reading by name
// ------------------------------------------------------------------------------------------------------

// The tensors of a set, under its names, less `lost`, plus `found`.
TensorSource source_of(const WeightSet& from, const std::string& lost = "",
                       const std::vector<std::string>& found = {}) {
  TensorSource source{.names = found, .read = {}, .where = "here"};
  for (const WeightInfo& info : from.list())
    if (info.name != lost) source.names.push_back(info.name);
  source.read = [&from](const std::string& name, F32 into) {
    for (size_t i = 0; i < from.list().size(); i++)
      if (from.list()[i].name == name) std::copy_n(from.at(i).data, into.numel(), into.data);
  };
  return source;
}
std::string refusal(WeightSet& into, const TensorSource& source) {
  try {
    read_weights(into, source);
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(ReadWeights, FillsEveryWeight) {
  WeightSet from(with_predictor()), into(with_predictor());
  randomize(from, 4);
  fill(into, -1);
  read_weights(into, source_of(from, "", {"model.layers.0.self_attn.rotary_emb.inv_freq"}));
  for (size_t i = 0; i < into.list().size(); i++)
    expect_same_bits(from.at(i).data, into.at(i).data, into.at(i).numel(), into.list()[i].name.c_str());
}

TEST(ReadWeights, NamesWhatIsMissingAndWhatIsExtra) {
  const std::string router = "model.layers.1.router.weight";
  WeightSet routed(with_predictor()), dense(dense_twin(with_predictor()));
  EXPECT_NE(refusal(routed, source_of(routed, router)).find(router), std::string::npos);
  const std::string extra = refusal(dense, source_of(routed));
  EXPECT_NE(extra.find("model.layers.1.predictor"), std::string::npos) << extra;
  EXPECT_NE(extra.find("more"), std::string::npos) << extra;
  EXPECT_EQ(extra.find('\n'), std::string::npos);
}

TEST(CopyWeights, TakesWhatBothHave) {
  ModelConfig more = with_predictor();
  more.routing.router_offset = true;
  WeightSet from(with_predictor()), to(more);
  randomize(from, 4);
  fill(to, -1);
  copy_weights(to, from);
  EXPECT_EQ(to.weights().section[1].router.offset[0], -1);
  EXPECT_EQ(to.weights().section[1].router.bias[0], from.weights().section[1].router.bias[0]);
  expect_same_bits(to.weights().head.data, from.weights().head.data, from.weights().head.numel());
  EXPECT_THROW(copy_weights(from, to), Error) << "nowhere to put the offset";
  more.vocab_size = 24;
  WeightSet wider(more);
  EXPECT_THROW(copy_weights(wider, from), Error);
}

TEST(ReadWeights, TakesAHeadThatIsTied) {
  ModelConfig c = tiny_config(1);
  c.tie_word_embeddings = true;
  WeightSet tied(c), untied(tiny_config(1));
  EXPECT_EQ(refusal(tied, source_of(tied, "", {"lm_head.weight"})), "(accepted)");
  EXPECT_NE(refusal(untied, source_of(untied, "lm_head.weight")).find("lm_head.weight"), std::string::npos);
}

}  // namespace
}  // namespace isobath
