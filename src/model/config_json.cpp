// config.json, to and from. What other programs would run as another model is refused or renamed (docs/design.md,
// Files).
#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "model/config.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

struct Reader {
  const Json& json;
  const std::string& path;

  const Json* find(const char* key) const {
    const auto at = json.find(key);
    return at == json.end() || at->is_null() ? nullptr : &*at;
  }
  [[noreturn]] void wrong(const char* key, const Json& found, const std::string& expected) const {
    fail("{}: {} is {}, expected {}", path, key, found.dump(), expected);
  }
  void get(const char* key, int64_t& value) const {
    if (const Json* j = find(key)) {
      if (!j->is_number_integer()) wrong(key, *j, "a whole number");
      value = j->get<int64_t>();
    }
  }
  void get(const char* key, double& value) const {
    if (const Json* j = find(key)) {
      if (!j->is_number()) wrong(key, *j, "a number");
      value = j->get<double>();
    }
  }
  void get(const char* key, bool& value) const {
    if (const Json* j = find(key)) {
      if (!j->is_boolean()) wrong(key, *j, "true or false");
      value = j->get<bool>();
    }
  }
  void get(const char* key, std::string& value) const {
    if (const Json* j = find(key)) {
      if (!j->is_string()) wrong(key, *j, "a word");
      value = j->get<std::string>();
    }
  }
  template <class T>
  void get(const char* key, std::vector<T>& values) const {
    const Json* j = find(key);
    if (j == nullptr) return;
    const Json list = j->is_array() ? *j : Json::array({*j});
    values.clear();
    for (const Json& item : list) {
      if (!item.is_number() || (std::is_integral_v<T> && !item.is_number_integer()))
        wrong(key, *j, std::is_integral_v<T> ? "a whole number or a list of them" : "a number or a list of numbers");
      values.push_back(item.get<T>());
    }
  }
  template <Enum E>
  void get(const char* key, E& value) const {
    const Json* j = find(key);
    if (j == nullptr) return;
    const auto named = j->is_string() ? parse_name<E>(j->get_ref<const std::string&>()) : std::nullopt;
    if (!named) wrong(key, *j, "one of " + names_of<E>());
    value = *named;
  }
};

// Keys whose other values are another model. A value that equals the built one is fine.
void refuse_unbuilt(const Reader& in) {
  const auto only = [&](const char* key, const Json& built, const char* why) {
    if (const Json* j = in.find(key); j != nullptr && *j != built)
      fail("{}: {} = {} is not built ({}); only {} is", in.path, key, j->dump(), why, built.dump());
  };
  only("hidden_act", "silu", "activation");
  only("attention_bias", false, "biases");
  only("mlp_bias", false, "biases");
  only("partial_rotary_factor", 1.0, "partial RoPE");
  if (const Json* j = in.find("sliding_window"))
    if (const Json* use = in.find("use_sliding_window"); use == nullptr || *use != false)
      fail("{}: sliding_window = {} is not built; only full causal attention is", in.path, j->dump());
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* j = in.find(key);
    if (j == nullptr) continue;
    if (!j->is_object()) in.wrong(key, *j, "null or an object");
    const Json type = j->value("rope_type", j->value("type", Json("default")));
    if (type != "default") fail("{}: {} type {} is not built; only default RoPE is", in.path, key, type.dump());
  }
  if (in.find("quantization_config") != nullptr)
    fail(
        "{}: its weights were quantized by another program (quantization_config); take the model that they were made "
        "from",
        in.path);
  const Json* type = in.find("model_type");
  if (type == nullptr) fail("{}: model_type is missing, expected llama, mistral, mixtral or isobath", in.path);
  if (*type != "llama" && *type != "mistral" && *type != "mixtral" && *type != "isobath")
    fail("{}: model_type is {}, expected llama, mistral, mixtral or isobath", in.path, type->dump());
}

void read_quantization(const Reader& in, ModelConfig& c) {
  const Json* j = in.find("quantization");
  if (j == nullptr) return;
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8})
    if (*j == Json(name_of(format))) c.quantized = format;
  if (!c.quantized) in.wrong("quantization", *j, "bf16 or int8");
}

// Mixtral's own words for its experts: two of them for each row, and no capacity.
void read_mixtral(const Reader& in, ExpertsConfig& e) {
  if (in.find("num_local_experts") == nullptr) fail("{}: num_local_experts is missing", in.path);
  in.get("num_local_experts", e.experts);
  in.get("num_experts_per_tok", e.per_token);
  if (e.per_token != 2)
    fail("{}: num_experts_per_tok is {}; of Mixtral models only those with 2 are built", in.path, e.per_token);
  in.get("router_aux_loss_coef", e.balance_weight);
}

void write_mixtral(Json& json, const ModelConfig& c) {
  for (const char* key : {"num_local_experts", "num_experts_per_tok", "router_aux_loss_coef"}) json.erase(key);
  if (!c.is_mixtral() || c.quantized == WeightFormat::kInt8) return;
  json["model_type"] = "mixtral";
  json["architectures"] = {"MixtralForCausalLM"};
  json["num_local_experts"] = c.experts.experts;
  json["num_experts_per_tok"] = c.experts.per_token;
  json["router_aux_loss_coef"] = c.experts.balance_weight;
  json["sliding_window"] = nullptr;
}

// The options of one object, of which every key must be one; `known` are keys that are read elsewhere.
template <class ForEach>
void read_object(const Reader& in, const std::string& name, std::vector<std::string> known, ForEach for_each) {
  for_each([&](auto, const char* key, auto& value, auto) {
    in.get(key, value);
    known.push_back(key);
  });
  for (const auto& [key, value] : in.json.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail("{}: {}.{} is not known to this version", in.path, name, key);
}

auto write_into(Json& object) {
  return [&object](auto, const char* key, const auto& value, auto) {
    if constexpr (Enum<std::decay_t<decltype(value)>>)
      object[key] = name_of(value);
    else
      object[key] = value;
  };
}

}  // namespace

ModelConfig config_from_json(const Json& json, const std::string& path) {
  if (!json.is_object()) fail("{}: expected a JSON object, found {}", path, json.type_name());
  const Reader in{json, path};
  refuse_unbuilt(in);
  ModelConfig c;
  c.rms_norm_eps = 1e-6;  // what config.json means where it is silent
  c.max_position_embeddings = 2048;
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"})
    if (in.find(key) == nullptr) fail("{}: {} is missing", path, key);
  in.get("vocab_size", c.vocab_size);
  for_each_model_option(c, [&](auto, const char* key, auto& value, auto) { in.get(key, value); });
  if (const Json* rope = in.find("rope_parameters")) Reader{*rope, path}.get("rope_theta", c.rope_theta);
  in.get("bos_token_id", c.bos_token_id);
  in.get("eos_token_id", c.eos_token_id);
  if (const Json* mod = in.find("mixture_of_depths")) {
    if (!mod->is_object()) in.wrong("mixture_of_depths", *mod, "an object");
    const Reader routing{*mod, path};
    routing.get("annealed", c.routing.annealed);
    read_object(routing, "mixture_of_depths", {"annealed", "experts"},
                [&](auto visit) { for_each_routing_option(c.routing, visit); });
    if (const Json* experts = routing.find("experts")) {
      if (!experts->is_object()) routing.wrong("mixture_of_depths.experts", *experts, "an object");
      read_object({*experts, path}, "mixture_of_depths.experts", {},
                  [&](auto visit) { for_each_experts_option(c.experts, visit); });
    }
  } else if (json["model_type"] == "isobath") {
    fail("{}: model_type is isobath, but the object mixture_of_depths is missing", path);
  }
  if (json["model_type"] == "mixtral") read_mixtral(in, c.experts);
  read_quantization(in, c);
  c.other = json;
  try {
    resolve(c, 1);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path, error.what()), error.fault());
  }
  return c;
}

ModelConfig read_config(const fs::path& file) {
  try {
    return config_from_json(parse_json(read_file(file, kConfigBytes), file.string()), file.string());
  } catch (const Json::exception& error) {
    fail("{}: not a model's config: {}", file.string(), error.what());
  }
}

void require_not_quantized(const ModelConfig& config, const fs::path& folder, std::string_view what) {
  if (config.quantized)
    fail("{}: quantized to {}, and {} needs the weights in fp32; take the model that it was made from", folder.string(),
         name_of(*config.quantized), what);
}

Json to_json(const ModelConfig& c) {
  Json json = c.other;
  const bool ours = c.quantized == WeightFormat::kInt8;  // nobody else reads its matrices
  const bool dense = c.routed_blocks() == 0 && !c.has_experts() && !ours;
  json["model_type"] = dense ? "llama" : "isobath";
  json["architectures"] = {dense ? "LlamaForCausalLM" : "IsobathForCausalLM"};
  json["vocab_size"] = c.vocab_size;
  for_each_model_option(c, [&](auto, const char* key, const auto& value, auto) { json[key] = value; });
  json["hidden_act"] = "silu";
  json["attention_bias"] = false;
  json["mlp_bias"] = false;
  // Two spellings of RoPE and of the type are in use; each reader finds its own.
  json["rope_parameters"] = {{"rope_theta", c.rope_theta}, {"rope_type", "default"}};
  json["rope_scaling"] = nullptr;
  json["torch_dtype"] = json["dtype"] = c.quantized == WeightFormat::kBf16 ? "bfloat16" : "float32";
  json.erase("quantization");
  if (c.quantized) json["quantization"] = name_of(*c.quantized);
  json["bos_token_id"] = c.bos_token_id >= 0 ? Json(c.bos_token_id) : Json();
  json["eos_token_id"] = c.eos_token_id.empty()       ? Json()
                         : c.eos_token_id.size() == 1 ? Json(c.eos_token_id[0])
                                                      : Json(c.eos_token_id);
  json.erase("mixture_of_depths");
  write_mixtral(json, c);
  if (dense || (c.is_mixtral() && !ours)) return json;
  Json& mod = json["mixture_of_depths"];
  for_each_routing_option(c.routing, write_into(mod));
  if (c.has_experts()) for_each_experts_option(c.experts, write_into(mod["experts"]));
  if (c.has_experts() && !c.experts.offset) mod["experts"].erase("experts_offset");
  if (c.routing.blocks.empty()) mod.erase("blocks");
  if (c.routing.start < 0) mod.erase("start");
  if (c.routing.select == "top_k") mod.erase("select");
  if (c.routing.cache == KeptKeys::kRouted) mod.erase("cache");
  if (c.routing.annealed != 1) mod["annealed"] = c.routing.annealed;
  if (c.routing.capacity.size() == 1) mod["capacity"] = c.routing.capacity[0];
  return json;
}

}  // namespace isobath
