#include "generate/load.h"

#include "base/error.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/safetensors.h"
#include "model/names.h"

namespace isobath {
namespace {

ModelConfig read_config(const fs::path& path) {
  try {
    return config_from_json(nlohmann::json::parse(read_file(path)), path.string());
  } catch (const nlohmann::json::exception& error) {
    fail("{}: not readable as JSON: {}", path.string(), error.what());
  }
}

Tokenizer read_tokenizer(const fs::path& folder, const ModelConfig& config) {
  if (fs::exists(folder / "tokenizer.json")) return Tokenizer::load(folder);
  const auto named = config.other.find("tokenizer");
  if (config.vocab_size == Tokenizer::bytes().vocab_size() || (named != config.other.end() && *named == "bytes"))
    return Tokenizer::bytes();
  fail("{}: there is no tokenizer.json, and config.json does not say \"tokenizer\": \"bytes\"; put the tokenizer that the "
       "model was trained with beside it",
       folder.string());
}

}  // namespace

LoadedModel load_model(const fs::path& path) {
  const fs::path folder = find_model_folder(path);
  const ModelConfig config = read_config(folder / "config.json");
  LoadedModel loaded{folder, read_tokenizer(folder, config), nullptr};
  require(loaded.tokenizer.vocab_size() <= config.vocab_size,
          "{}: the tokenizer has {} ids, the model a vocabulary of {}; they do not belong together", folder.string(),
          loaded.tokenizer.vocab_size(), config.vocab_size);
  const TensorFolder tensors(folder);
  loaded.model = std::make_unique<Model>(config);
  read_weights(loaded.model->weights,
               {.names = tensors.names(),
                .read = [&](const std::string& name, F32 into) { tensors.read(name, into); },
                .where = folder.string()});
  return loaded;
}

void save_model(const fs::path& folder, const WeightSet& weights, const Tokenizer& tokenizer) {
  nlohmann::json json = to_json(weights.config());
  json.erase("tokenizer");
  if (tokenizer.hash() == Tokenizer::bytes().hash()) json["tokenizer"] = "bytes";
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < weights.list().size(); i++) tensors.push_back({weights.list()[i].name, weights.at(i)});
  replace_file(folder / "config.json", json.dump(2) + "\n");
  write_safetensors(folder / "model.safetensors", tensors);
  tokenizer.save(folder);
}

}  // namespace isobath
