#include "generate/load.h"

#include "base/error.h"
#include "base/memory.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/safetensors.h"
#include "model/names.h"

namespace isobath {
namespace {

Tokenizer read_tokenizer(const fs::path& folder, const ModelConfig& config) {
  if (fs::exists(folder / "tokenizer.json") || fs::exists(folder / "encoder.json")) return Tokenizer::load(folder);
  const auto named = config.other.find("tokenizer");
  const Tokenizer bytes = Tokenizer::bytes();
  if (config.vocab_size == bytes.vocab_size() || (named != config.other.end() && *named == "bytes")) return bytes;
  fail(
      "{}: no tokenizer.json or encoder.json, and config.json does not say \"tokenizer\": \"bytes\"; put the tokenizer "
      "that the model was trained with beside it",
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
  read_weights(loaded.model->weights, {.names = tensors.names(),
                                       .read = [&](const std::string& name, F32 into) { tensors.read(name, into); },
                                       .where = folder.string()});
  return loaded;
}

void forget_packed_weights(Model& model) {
  model.products.reset();
  for (size_t i = 0; i < model.weights.list().size(); i++) {
    const Kind kind = model.weights.list()[i].kind;
    const F32 w = model.weights.at(i);
    if (kind == Kind::kMatrix || kind == Kind::kOutput) give_back(w.data, w.bytes());
  }
}

}  // namespace isobath
