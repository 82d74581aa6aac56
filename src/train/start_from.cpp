#include "train/start_from.h"

#include "base/error.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/safetensors.h"
#include "model/names.h"

namespace isobath {
namespace {

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
  copy_weights(weights, source);
}

}  // namespace isobath
