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
  const Json* type = in.find("model_type");
  if (type == nullptr) fail("{}: model_type is missing, expected llama, mistral or isobath", in.path);
  if (*type != "llama" && *type != "mistral" && *type != "isobath")
    fail("{}: model_type is {}, expected llama, mistral or isobath", in.path, type->dump());
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
    std::vector<std::string> known{"annealed"};
    routing.get("annealed", c.routing.annealed);
    for_each_routing_option(c.routing, [&](auto, const char* key, auto& value, auto) {
      routing.get(key, value);
      known.push_back(key);
    });
    for (const auto& [key, value] : mod->items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail("{}: mixture_of_depths.{} is not known to this version", path, key);
  } else if (json["model_type"] == "isobath") {
    fail("{}: model_type is isobath, but the object mixture_of_depths is missing", path);
  }
  c.other = json;
  resolve(c, 1);
  return c;
}

ModelConfig read_config(const fs::path& file) {
  try {
    return config_from_json(parse_json(read_file(file, kConfigBytes), file.string()), file.string());
  } catch (const Json::exception& error) {
    fail("{}: not a model's config: {}", file.string(), error.what());
  }
}

Json to_json(const ModelConfig& c) {
  Json json = c.other;
  const bool dense = c.routed_blocks() == 0;
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
  json["torch_dtype"] = json["dtype"] = "float32";
  json["bos_token_id"] = c.bos_token_id >= 0 ? Json(c.bos_token_id) : Json();
  json["eos_token_id"] = c.eos_token_id.empty()       ? Json()
                         : c.eos_token_id.size() == 1 ? Json(c.eos_token_id[0])
                                                      : Json(c.eos_token_id);
  json.erase("mixture_of_depths");
  if (dense) return json;
  Json& mod = json["mixture_of_depths"];
  for_each_routing_option(c.routing, [&](auto, const char* key, const auto& value, auto) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (Enum<T>)
      mod[key] = name_of(value);
    else
      mod[key] = value;
  });
  if (c.routing.blocks.empty()) mod.erase("blocks");
  if (c.routing.start < 0) mod.erase("start");
  if (c.routing.select == "top_k") mod.erase("select");
  if (c.routing.annealed != 1) mod["annealed"] = c.routing.annealed;
  if (c.routing.capacity.size() == 1) mod["capacity"] = c.routing.capacity[0];
  return json;
}

}  // namespace isobath
