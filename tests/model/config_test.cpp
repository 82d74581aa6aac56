// The shape of a model: what is refused and how, defaults, and config.json there and back.
#include "model/config.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

ModelConfig routed() {
  ModelConfig c;
  c.vocab_size = 257;
  c.routing.topology = Topology::kJoint;
  return c;
}

// The message of the Error that `work` throws.
std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "(accepted)";
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

// ---- config.json
// --------------------------------------------------------------------------------------------------------

Json llama() {
  return Json::parse(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 256, "bos_token_id": 1,
    "eos_token_id": [2, 5], "initializer_range": 0.02, "attention_dropout": 0.0})");
}
Json isobath_json() {
  Json json = llama();
  json["model_type"] = "isobath";
  json["mixture_of_depths"] = {{"topology", "joint"}, {"capacity", 0.25}};
  return json;
}

TEST(ConfigJson, ReadsLlama) {
  const ModelConfig c = config_from_json(llama(), "config.json");
  EXPECT_EQ(c.vocab_size, 100);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.num_key_value_heads, 2);
  EXPECT_EQ(c.rope_theta, 500000);
  EXPECT_EQ(c.bos_token_id, 1);
  EXPECT_EQ(c.eos_token_id, (std::vector<int64_t>{2, 5}));
  EXPECT_EQ(c.routed_blocks(), 0);
}

TEST(ConfigJson, RoundTripKeepsEverything) {
  ModelConfig c = config_from_json(llama(), "config.json");
  c.routing = {.topology = Topology::kJoint,
               .every = 1,
               .blocks = {1},
               .capacity = {0.5, 0.25},
               .gate = Gate::kTanh,
               .router = Router::kLearned,
               .router_bias = true,
               .causal = Causal::kPredictor,
               .aux_weight = 0.5,
               .predictor_width = 9,
               .capacity_scope = Scope::kDocument,
               .attention_scope = Scope::kDocument};
  c.tie_word_embeddings = true;
  const Json json = to_json(c);
  EXPECT_EQ(json["model_type"], "isobath") << "no other program may run a routed model as a dense one";
  EXPECT_EQ(json["initializer_range"], 0.02) << "keys that are not ours are kept";
  EXPECT_EQ(json["mixture_of_depths"]["gate"], "tanh");
  const ModelConfig back = config_from_json(Json::parse(json.dump()), "config.json");
  EXPECT_EQ(to_json(back), json);
  const auto values = [](ModelConfig& config) {
    std::vector<std::string> text;
    const auto note = [&](auto, const char* key, const auto& value, auto) { text.push_back(key + Json(value).dump()); };
    for_each_model_option(config, note);
    for_each_routing_option(config.routing, note);
    return text;
  };
  ModelConfig read = back;
  EXPECT_EQ(values(read), values(c));
  EXPECT_EQ(back.bos_token_id, c.bos_token_id);
  EXPECT_EQ(back.eos_token_id, c.eos_token_id);
}

TEST(ConfigJson, OfADenseModelIsLlamaAndSaysNothingOfRouting) {
  const Json json = to_json(dense_twin(config_from_json(isobath_json(), "config.json")));
  EXPECT_EQ(json["model_type"], "llama");
  EXPECT_EQ(json["architectures"], Json::array({"LlamaForCausalLM"}));
  EXPECT_FALSE(json.contains("mixture_of_depths"));
}

TEST(ConfigJson, KeepsTheStartAndSaysNothingOfTheUsualOne) {
  Json json = isobath_json();
  EXPECT_FALSE(to_json(config_from_json(json, "config.json"))["mixture_of_depths"].contains("start"));
  json["mixture_of_depths"]["start"] = 0;
  EXPECT_EQ(to_json(config_from_json(json, "config.json"))["mixture_of_depths"]["start"], 0);
}

TEST(ConfigJson, OneCapacityIsANumber) {
  EXPECT_EQ(to_json(config_from_json(isobath_json(), "config.json"))["mixture_of_depths"]["capacity"], 0.25);
}

TEST(ConfigJson, RefusesByKey) {
  const auto without = [](const char* key) {
    Json json = llama();
    json.erase(key);
    return json;
  };
  const auto with = [](Json json, const char* pointer, const Json& value) {
    json[Json::json_pointer(pointer)] = value;
    return json;
  };
  Json no_object = llama();
  no_object["model_type"] = "isobath";
  const std::vector<std::pair<const char*, Json>> table{
      {"JSON object", Json::array({1})},
      {"vocab_size is missing", without("vocab_size")},
      {"hidden_size is missing", without("hidden_size")},
      {"intermediate_size is missing", without("intermediate_size")},
      {"num_hidden_layers is missing", without("num_hidden_layers")},
      {"num_attention_heads is missing", without("num_attention_heads")},
      {"model_type is missing", without("model_type")},
      {"model_type", with(llama(), "/model_type", "gpt2")},
      {"hidden_act", with(llama(), "/hidden_act", "gelu")},
      {"attention_bias", with(llama(), "/attention_bias", true)},
      {"mlp_bias", with(llama(), "/mlp_bias", true)},
      {"partial_rotary_factor", with(llama(), "/partial_rotary_factor", 0.5)},
      {"sliding_window", with(llama(), "/sliding_window", 128)},
      {"rope_scaling", with(llama(), "/rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}})},
      {"rope_scaling", with(llama(), "/rope_scaling", {{"type", "linear"}})},
      {"rope_scaling", with(llama(), "/rope_scaling", "linear")},
      {"rope_parameters", with(llama(), "/rope_parameters", {{"rope_type", "yarn"}})},
      {"hidden_size is \"32\"", with(llama(), "/hidden_size", "32")},
      {"hidden_size is 32.5", with(llama(), "/hidden_size", 32.5)},
      {"rope_theta", with(llama(), "/rope_theta", "many")},
      {"tie_word_embeddings", with(llama(), "/tie_word_embeddings", 1)},
      {"eos_token_id", with(llama(), "/eos_token_id", {"a"})},
      {"num_attention_heads = 5", with(llama(), "/num_attention_heads", 5)},
      {"mixture_of_depths is missing", no_object},
      {"mixture_of_depths", with(isobath_json(), "/mixture_of_depths", 7)},
      {"mixture_of_depths.experts", with(isobath_json(), "/mixture_of_depths/experts", 4)},
      {"topology", with(isobath_json(), "/mixture_of_depths/topology", "sideways")},
      {"raw, sigmoid, tanh", with(isobath_json(), "/mixture_of_depths/gate", "softmax")},
      {"capacity", with(isobath_json(), "/mixture_of_depths/capacity", 2)},
      {"capacity", with(isobath_json(), "/mixture_of_depths/capacity", "half")},
      {"router_bias", with(isobath_json(), "/mixture_of_depths/router_bias", "no")},
  };
  for (const auto& [says, json] : table) {
    const Json& tried = json;
    const std::string message = refusal([&] { config_from_json(tried, "here/config.json"); });
    EXPECT_NE(message.find(says), std::string::npos) << says << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(ConfigJson, AcceptsWhatMeansTheSame) {
  Json json = llama();
  json["rope_scaling"] = nullptr;
  json["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 12345.0}};
  json["attention_bias"] = false;
  json["sliding_window"] = 4096;
  json["use_sliding_window"] = false;
  EXPECT_EQ(config_from_json(json, "config.json").rope_theta, 12345);
}

// ---- other people's files
// -------------------------------------------------------------------------------------------------

Json read_json(const std::filesystem::path& path) { return Json::parse(std::ifstream(path)); }

TEST(ConfigJson, TinyLlamaLoads) {
  ISOBATH_NEEDS_DATA(path, "configs/tinyllama-1.1b/config.json");
  const ModelConfig c = config_from_json(read_json(path), path.string());
  EXPECT_EQ(c.num_hidden_layers, 22);
  EXPECT_EQ(c.num_key_value_heads, 4);
  EXPECT_EQ(c.vocab_size, 32000);
  EXPECT_EQ(to_json(c)["model_type"], "llama");
}

TEST(ConfigJson, Gpt2IsRefusedByName) {
  ISOBATH_NEEDS_DATA(path, "configs/gpt2/config.json");
  const std::string message = refusal([&] { config_from_json(read_json(path), path.string()); });
  EXPECT_NE(message.find("gpt2"), std::string::npos) << message;
}

}  // namespace
}  // namespace isobath
