// The shape of a model: what is refused and how, defaults, which blocks are routed with which capacity.
#include "model/config.h"

#include <gtest/gtest.h>

#include <functional>
#include <numbers>

#include "support/refusal.h"

namespace isobath {
namespace {

using testing::refusal;

ModelConfig routed() {
  ModelConfig c;
  c.vocab_size = 257;
  c.routing.topology = Topology::kJoint;
  return c;
}

// ---- resolve
// ------------------------------------------------------------------------------------------------------------

struct Refused {
  const char* says;  // the key, in the message
  std::function<void(ModelConfig&)> change;
};

TEST(Resolve, RefusesByKey) {
  const std::vector<Refused> table{
      {"model.vocab_size", [](auto& c) { c.vocab_size = 0; }},
      {"model.vocab_size", [](auto& c) { c.vocab_size = int64_t{1} << 31; }},
      {"model.hidden_size", [](auto& c) { c.hidden_size = 0; }},
      {"model.num_hidden_layers", [](auto& c) { c.num_hidden_layers = -1; }},
      {"model.num_attention_heads", [](auto& c) { c.num_attention_heads = 0; }},
      {"num_attention_heads = 3", [](auto& c) { c.num_attention_heads = 3; }},
      {"model.num_key_value_heads", [](auto& c) { c.num_key_value_heads = -2; }},
      {"num_key_value_heads = 3", [](auto& c) { c.num_key_value_heads = 3; }},
      {"model.intermediate_size", [](auto& c) { c.intermediate_size = -5; }},
      {"head_dim is 7", [](auto& c) { c.head_dim = 7; }},
      {"head_dim is 258", [](auto& c) { c.head_dim = 258; }},
      {"head_dim is -2", [](auto& c) { c.head_dim = -2; }},
      {"max_position_embeddings = 16", [](auto& c) { c.max_position_embeddings = 16; }},
      {"model.max_position_embeddings", [](auto& c) { c.max_position_embeddings = -1; }},
      {"model.rms_norm_eps", [](auto& c) { c.rms_norm_eps = 0; }},
      {"model.rms_norm_eps", [](auto& c) { c.rms_norm_eps = std::nan(""); }},
      {"model.rope_theta", [](auto& c) { c.rope_theta = -1; }},
      {"routing.every is 0", [](auto& c) { c.routing.every = 0; }},
      {"routing.start is 4", [](auto& c) { c.routing.start = 4; }},
      {"routing.start is -2", [](auto& c) { c.routing.start = -2; }},
      {"routing.start = 1 and routing.blocks",
       [](auto& c) {
         c.routing.start = 1;
         c.routing.blocks = {1};
       }},
      {"routing.blocks names block 4",
       [](auto& c) {
         c.routing.blocks = {1, 4};
       }},
      {"routing.blocks names block -1", [](auto& c) { c.routing.blocks = {-1}; }},
      {"routing.blocks names a block twice",
       [](auto& c) {
         c.routing.blocks = {1, 1};
       }},
      {"routing.capacity has 2 values",
       [](auto& c) {
         c.routing.capacity = {0.5, 0.5};
       }},
      {"routing.capacity has 0 values", [](auto& c) { c.routing.capacity = {}; }},
      {"routing.capacity is 0", [](auto& c) { c.routing.capacity = {0}; }},
      {"routing.capacity is 1.1", [](auto& c) { c.routing.capacity = {1.1}; }},
      {"routing.capacity is nan", [](auto& c) { c.routing.capacity = {std::nan("")}; }},
      {"capacity_last = 0.5 without a schedule", [](auto& c) { c.routing.capacity_last = 0.5; }},
      {"routing.capacity_last is 0", [](auto& c) { c.routing.capacity_schedule = CapacitySchedule::kLinear; }},
      {"routing.capacity_last is 1.5",
       [](auto& c) {
         c.routing.capacity_schedule = CapacitySchedule::kCosine;
         c.routing.capacity_last = 1.5;
       }},
      {"capacity_schedule = linear does too",
       [](auto& c) {
         c.routing.capacity = {0.5, 0.5, 0.5, 0.5};
         c.routing.capacity_schedule = CapacitySchedule::kLinear;
         c.routing.capacity_last = 0.5;
       }},
      {"routes no block", [](auto& c) { c.routing.every = 5; }},
      {"router = random has a causal rule", [](auto& c) { c.routing.router = Router::kRandom; }},
      {"router = first has a causal rule", [](auto& c) { c.routing.router = Router::kFirst; }},
      {"router = spaced has the gate 1",
       [](auto& c) {
         c.routing.router = Router::kSpaced;
         c.routing.causal = Causal::kNone;
         c.routing.gate = Gate::kSigmoid;
       }},
      {"router = first goes by positions",
       [](auto& c) {
         c.routing.router = Router::kFirst;
         c.routing.causal = Causal::kNone;
         c.routing.capacity_scope = Scope::kDocument;
       }},
      {"router = random has no bias",
       [](auto& c) {
         c.routing.router = Router::kRandom;
         c.routing.causal = Causal::kNone;
         c.routing.router_bias = true;
       }},
      {"routing.aux_weight", [](auto& c) { c.routing.aux_weight = -0.1; }},
      {"routing.predictor_lookback is 4",
       [](auto& c) {
         c.routing.causal = Causal::kPredictor;
         c.routing.predictor_lookback = 4;
       }},
      {"routing.cache = all with topology = mlp",
       [](auto& c) {
         c.routing.topology = Topology::kMlp;
         c.routing.cache = KeptKeys::kAll;
       }},
      {"choice = token multiplies", [](auto& c) { c.routing.choice = Choice::kToken; }},
      {"choice = token has a causal rule",
       [](auto& c) {
         c.routing.choice = Choice::kToken;
         c.routing.gate = Gate::kSigmoid;
       }},
      {"choice = token needs scores",
       [](auto& c) {
         c.routing.choice = Choice::kToken;
         c.routing.router = Router::kRandom;
         c.routing.causal = Causal::kNone;
       }},
      {"routing.balance_weight is -1", [](auto& c) { c.routing.balance_weight = -1; }},
      {"routing.z_weight is -1", [](auto& c) { c.routing.z_weight = -1; }},
      {"router = random reads no rows",
       [](auto& c) {
         c.routing.router = Router::kRandom;
         c.routing.causal = Causal::kNone;
         c.routing.router_input = RouterInput::kNormed;
       }},
      {"router = random has no scores",
       [](auto& c) {
         c.routing.router = Router::kRandom;
         c.routing.causal = Causal::kNone;
         c.routing.z_weight = 0.1;
       }},
      {"routing.predictor_width", [](auto& c) { c.routing.predictor_width = -1; }},
  };
  for (const Refused& row : table) {
    ModelConfig c = routed();
    row.change(c);
    const std::string message = refusal([&] { resolve(c, 32); });
    EXPECT_NE(message.find(row.says), std::string::npos) << row.says << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

// What no model has is refused of a dense one too, though nothing of it is routed.
TEST(Resolve, RefusesValuesOfDenseModels) {
  const std::vector<Refused> table{
      {"routing.capacity is 7", [](auto& c) { c.routing.capacity = {7}; }},
      {"routing.every is 0", [](auto& c) { c.routing.every = 0; }},
      {"routing.select is best", [](auto& c) { c.routing.select = "best"; }},
      {"routing.z_weight is -1", [](auto& c) { c.routing.z_weight = -1; }},
      {"routing.aux_weight is -1", [](auto& c) { c.routing.aux_weight = -1; }},
      {"routing.balance_weight is -1", [](auto& c) { c.routing.balance_weight = -1; }},
      {"routing.predictor_width is -1", [](auto& c) { c.routing.predictor_width = -1; }},
  };
  for (const Refused& row : table) {
    ModelConfig c = routed();
    c.routing.topology = Topology::kDense;
    row.change(c);
    const std::string message = refusal([&] { resolve(c, 32); });
    EXPECT_NE(message.find(row.says), std::string::npos) << row.says << ": " << message;
  }
  ModelConfig unused = routed();  // configs/*.toml with --topology dense
  unused.routing.topology = Topology::kDense;
  unused.routing.every = 9;
  unused.routing.capacity = {0.5, 0.5};
  unused.routing.predictor_lookback = 9;
  resolve(unused, 32);
}

TEST(Resolve, FillsDefaults) {
  ModelConfig c = routed();
  c.hidden_size = 96;
  c.num_attention_heads = 3;
  resolve(c, 128);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.num_key_value_heads, 3);
  EXPECT_EQ(c.intermediate_size, 256);
  EXPECT_EQ(c.max_position_embeddings, 128);
  EXPECT_EQ(c.predictor_width(), 16);
  c.hidden_size = 64;
  c.intermediate_size = 0;
  resolve(c, 128);
  EXPECT_EQ(c.intermediate_size, 176);
}

TEST(Resolve, AgainChangesNothing) {
  ModelConfig once = routed();
  resolve(once, 64);
  ModelConfig twice = once;
  resolve(twice, 64);
  EXPECT_EQ(to_json(once), to_json(twice));
}

TEST(Sections, AreBlocksOrHalvesOfThem) {
  ModelConfig c = routed();
  c.num_hidden_layers = 3;
  const auto sections = [&](Topology topology) {
    c.routing.topology = topology;
    std::string all;
    for (int64_t i = 0; i < c.sections(); i++) {
      const Section s = c.section(i);
      EXPECT_EQ(s.index, i);
      EXPECT_EQ(c.capacity(s), s.routed ? c.capacity(s.block) : 1);
      all += (i ? ", " : "") + s.label() + (s.routed ? " routed" : "");
    }
    return all;
  };
  EXPECT_EQ(sections(Topology::kDense), "0, 1, 2");
  EXPECT_EQ(c.routers(), 0);
  EXPECT_EQ(sections(Topology::kJoint), "0, 1 routed, 2");
  EXPECT_EQ(c.routers(), 1);
  EXPECT_EQ(sections(Topology::kStaggered), "0, 1 attention routed, 1 mlp routed, 2");
  EXPECT_EQ(c.routers(), 2);
  EXPECT_EQ(sections(Topology::kAttention), "0, 1 attention routed, 1 mlp, 2");
  EXPECT_EQ(c.routers(), 1);
  c.routing.every = 1;
  EXPECT_EQ(sections(Topology::kMlp),
            "0 attention, 0 mlp routed, 1 attention, 1 mlp routed, 2 attention, 2 mlp routed");
  EXPECT_EQ(c.routers(), 3);
}

TEST(Routing, EveryOtherBlockFromTheSecond) {
  ModelConfig c = routed();
  c.num_hidden_layers = 5;
  const auto blocks = [&] {
    std::vector<int64_t> result;
    for (int64_t l = 0; l < c.num_hidden_layers; l++)
      if (c.routed(l)) result.push_back(l);
    return result;
  };
  EXPECT_EQ(blocks(), (std::vector<int64_t>{1, 3}));
  c.routing.every = 1;
  EXPECT_EQ(blocks(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  c.routing.every = 3;
  EXPECT_EQ(blocks(), (std::vector<int64_t>{2}));
  c.routing.start = 0;
  EXPECT_EQ(blocks(), (std::vector<int64_t>{0, 3}));
  c.routing.start = 1;
  EXPECT_EQ(blocks(), (std::vector<int64_t>{1, 4}));
  c.routing.every = 2;
  c.routing.start = 4;
  EXPECT_EQ(blocks(), (std::vector<int64_t>{4}));
  c.routing.start = -1;
  c.routing.blocks = {4, 0};
  EXPECT_EQ(blocks(), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(c.routed_blocks(), 2);
  c.routing.capacity = {0.1, 0.2, 0.3, 0.4, 0.5};
  EXPECT_EQ(c.capacity(4), 0.5);
  EXPECT_EQ(c.capacity(3), 1);
  EXPECT_EQ(dense_twin(c).routed_blocks(), 0);
  EXPECT_EQ(dense_twin(c).hidden_size, c.hidden_size);
}

TEST(CapacitySchedule, GoesFromTheFirstRoutedBlockToTheLast) {
  ModelConfig c = routed();
  c.num_hidden_layers = 6;
  c.routing.start = 0;  // 0, 2, 4
  c.routing.capacity = {0.75};
  c.routing.capacity_last = 0.25;
  c.routing.capacity_schedule = CapacitySchedule::kLinear;
  EXPECT_EQ(c.capacity(0), 0.75);
  EXPECT_EQ(c.capacity(1), 1) << "dense";
  EXPECT_NEAR(c.capacity(2), 0.5, 1e-15);
  EXPECT_EQ(c.capacity(4), 0.25);
  c.routing.every = 1;
  c.routing.capacity_schedule = CapacitySchedule::kCosine;
  EXPECT_EQ(c.capacity(0), 0.75);
  EXPECT_NEAR(c.capacity(1), 0.5 + 0.25 * std::cos(std::numbers::pi / 5), 1e-15);
  EXPECT_NEAR(c.capacity(4), 0.5 + 0.25 * std::cos(std::numbers::pi * 4 / 5), 1e-15);
  EXPECT_EQ(c.capacity(5), 0.25);
  c.routing.blocks = {3};
  EXPECT_EQ(c.capacity(3), 0.75) << "the only one is the first";
}

TEST(Capacity, ThatIsAnnealedIsPartOfTheWayFromOne) {
  ModelConfig c = routed();
  c.routing.capacity = {0.2};
  EXPECT_EQ(c.capacity(1), 0.2);
  c.routing.annealed = 0;
  EXPECT_EQ(c.capacity(1), 1);
  c.routing.annealed = 0.25;
  EXPECT_NEAR(c.capacity(1), 0.8, 1e-15);
  resolve(c, 32);
  EXPECT_EQ(config_from_json(to_json(c), "config.json").routing.annealed, 0.25);
  c.routing.annealed = 2;
  EXPECT_NE(refusal([&] { resolve(c, 32); }).find("annealed is 2"), std::string::npos);
}

}  // namespace
}  // namespace isobath
