// config.json there and back: what is kept, what is refused and how.
#include <gtest/gtest.h>

#include <fstream>

#include "model/config.h"
#include "support/refusal.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using Json = nlohmann::json;
using testing::refusal;

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

// ---- experts

Json mixtral() {
  Json json = llama();
  json["model_type"] = "mixtral";
  json["num_local_experts"] = 4;
  json["router_aux_loss_coef"] = 0.02;
  json["sliding_window"] = nullptr;
  return json;
}

TEST(ConfigJson, ReadsAndWritesMixtral) {
  const ModelConfig c = config_from_json(mixtral(), "config.json");
  EXPECT_EQ(c.experts.experts, 4);
  EXPECT_EQ(c.experts.per_token, 2);
  EXPECT_EQ(c.experts.balance_weight, 0.02);
  EXPECT_TRUE(c.is_mixtral());
  const Json json = to_json(c);
  EXPECT_EQ(json["model_type"], "mixtral");
  EXPECT_EQ(json["architectures"], Json::array({"MixtralForCausalLM"}));
  EXPECT_EQ(json["num_local_experts"], 4);
  EXPECT_EQ(json["num_experts_per_tok"], 2);
  EXPECT_FALSE(json.contains("mixture_of_depths"));
  EXPECT_EQ(to_json(config_from_json(Json::parse(json.dump()), "config.json")), json);
}

TEST(ConfigJson, OtherExpertsAreNobodyElsesModel) {
  const std::pair<const char*, std::function<void(ModelConfig&)>> table[] = {
      {"one per token", [](ModelConfig& c) { c.experts.per_token = 1; }},
      {"dropping", [](ModelConfig& c) { c.experts.capacity_factor = 1.25; }},
      {"expert choice", [](ModelConfig& c) { c.experts.choice = Choice::kExpert; }},
      {"integrated", [](ModelConfig& c) { c.experts.per_token = 1, c.experts.no_ops = 1; }},
      {"staged", [](ModelConfig& c) { c.routing.topology = Topology::kJoint; }},
  };
  for (const auto& [name, change] : table) {
    ModelConfig c = config_from_json(mixtral(), "config.json");
    change(c);
    resolve(c, 1);
    const Json json = to_json(c);
    EXPECT_EQ(json["model_type"], "isobath") << name;
    EXPECT_FALSE(json.contains("num_local_experts")) << name;
    EXPECT_EQ(json["mixture_of_depths"]["experts"]["experts"], 4) << name;
    const ModelConfig back = config_from_json(Json::parse(json.dump()), "config.json");
    EXPECT_EQ(to_json(back), json) << name;
    EXPECT_EQ(back.experts.no_ops, c.experts.no_ops) << name;
    EXPECT_EQ(back.experts.capacity, c.experts.capacity) << name;
  }
}

TEST(ConfigJson, RefusesExpertsThatAreNotBuilt) {
  const auto message_of = [](const Json& json) { return refusal([&] { config_from_json(json, "config.json"); }); };
  Json one = mixtral(), none = mixtral(), unknown = isobath_json();
  one["num_experts_per_tok"] = 1;
  none.erase("num_local_experts");
  unknown["mixture_of_depths"]["experts"] = {{"experts", 4}, {"jitter", 0.1}};
  EXPECT_NE(message_of(one).find("num_experts_per_tok is 1"), std::string::npos) << message_of(one);
  EXPECT_NE(message_of(none).find("num_local_experts is missing"), std::string::npos) << message_of(none);
  EXPECT_NE(message_of(unknown).find("experts.jitter"), std::string::npos) << message_of(unknown);
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
      {"mixture_of_depths.shortcuts", with(isobath_json(), "/mixture_of_depths/shortcuts", 4)},
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
