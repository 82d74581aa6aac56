#include "train/start_from.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/safetensors.h"
#include "model/names.h"

namespace isobath {
namespace {

// The settings of routing and experts in which two models differ: "causal = "bce" (there "predictor")".
std::string differences(const ModelConfig& here, const ModelConfig& there) {
  if (here.routed_blocks() == 0 && !here.has_experts()) return "topology = \"dense\"";
  const auto settings = [](const ModelConfig& c) { return to_json(c)["mixture_of_depths"].flatten(); };
  const nlohmann::json mine = settings(here), theirs = settings(there);
  std::string text;
  for (const auto& [path, value] : theirs.items())
    if (const nlohmann::json own = mine.value(path, nlohmann::json()); own != value)
      text += fmt::format("{}{} = {} (there {})", text.empty() ? "" : ", ", path.substr(1), own.dump(), value.dump());
  return text;
}

// A run may have more weights than the model that it starts from, not fewer.
void require_places(const WeightSet& weights, const WeightSet& source, const fs::path& model) {
  for (const WeightInfo& info : source.list())
    require(
        std::any_of(weights.list().begin(), weights.list().end(),
                    [&](const WeightInfo& own) { return own.name == info.name; }),
        "{} has the weight {}, for which this run has no place, since its routing differs: {}; leave these settings "
        "out",
        model.string(), info.name, differences(weights.config(), source.config()));
}

ModelConfig config_of(const fs::path& model) { return read_config(find_model_folder(model) / "config.json"); }

}  // namespace

void take_architecture(RunConfig& config, const fs::path& model) {
  const fs::path folder = find_model_folder(model);
  config.model = config_of(model);
  require_not_quantized(config.model, model, "training");
  config.model.other = nlohmann::json::object();  // of the folder's history, not of the architecture
  if (fs::exists(folder / "tokenizer.json") || fs::exists(folder / "encoder.json"))
    config.data.tokenizer = folder.string();
  config.train.from = model.string();
}

void take_vocabulary(ModelConfig& config, const fs::path& model, int64_t tokenizer_size) {
  ModelConfig source = config_of(model);
  require(tokenizer_size <= source.vocab_size,
          "{}: the tokenizer has {} ids, the model a vocabulary of {}; name the tokenizer that it was trained with "
          "(--tokenizer)",
          model.string(), tokenizer_size, source.vocab_size);
  config.vocab_size = source.vocab_size;
  if (config.eos_token_id.empty()) config.eos_token_id = source.eos_token_id;
  for_each_model_option(source, [&](auto, const char* key, const auto& had, auto) {
    for_each_model_option(config, [&](auto, const char* name, const auto& has, auto) {
      if constexpr (std::is_same_v<decltype(had), decltype(has)>)
        require(std::string_view(key) != name || had == has,
                "model.{} is {}, but the weights of {} are of a model with {}; leave it out", key, has, model.string(),
                had);
    });
  });
}

void read_start(WeightSet& weights, const fs::path& model) {
  const TensorFolder tensors(find_model_folder(model));
  const ModelConfig config = config_of(model);
  require_not_quantized(config, model, "training");
  WeightSet source(config);
  read_weights(source, {.names = tensors.names(),
                        .read = [&](const std::string& name, F32 into) { tensors.read(name, into); },
                        .where = model.string()});
  require_places(weights, source, model);
  copy_weights(weights, source);
}

}  // namespace isobath
