#include "generate/load.h"

#include <map>

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

// config.json says how matrices are stored; one that is stored otherwise belongs to another model.
void check_format(const RawMatrix& matrix, const ModelConfig& config, const std::string& name, const fs::path& folder) {
  if (!config.quantized) {
    require(matrix.type != RawType::kInt8,
            "{}: {} is in int8, but config.json has no \"quantization\"; they do not belong together", folder.string(),
            name);
    return;
  }
  const RawType expected = config.quantized == WeightFormat::kInt8 ? RawType::kInt8 : RawType::kBf16;
  require(matrix.type == expected,
          "{}: config.json says that matrices are in {}, but {} is not; they do not belong together", folder.string(),
          name_of(*config.quantized), name);
}

// Without the scales of int8 matrices, which come with these.
std::vector<std::string> names_of_weights(const TensorFolder& tensors) {
  std::vector<std::string> names = tensors.names();
  std::erase_if(names, [&](const std::string& name) {
    const std::string matrix = name.ends_with("_scale") ? name.substr(0, name.size() - 6) : "";
    return tensors.has(matrix) && tensors.at(matrix).dtype == "I8";
  });
  return names;
}

LoadedModel load(const fs::path& path, Matrices matrices) {
  const fs::path folder = find_model_folder(path);
  const ModelConfig config = read_config(folder / "config.json");
  LoadedModel loaded{folder, read_tokenizer(folder, config), nullptr};
  require(loaded.tokenizer.vocab_size() <= config.vocab_size,
          "{}: the tokenizer has {} ids, the model a vocabulary of {}; they do not belong together", folder.string(),
          loaded.tokenizer.vocab_size(), config.vocab_size);
  const auto tensors = std::make_shared<const TensorFolder>(folder);
  const auto shapes = std::make_shared<std::map<std::string, Shape>>();
  FileMatrices file;
  if (matrices == Matrices::kInFile || config.quantized)
    file = {.find = [=](const std::string& name) { return tensors->matrix(name, shapes->at(name)); },
            .file = tensors,
            .where = folder.string()};
  const bool in_file = file.find != nullptr;
  loaded.model = std::make_unique<Model>(config, std::move(file));
  for (const WeightInfo& info : loaded.model->weights.list()) (*shapes)[info.name] = info.shape;
  const auto lend = [&](const std::string& name, Shape shape) -> const float* {
    const RawMatrix matrix = tensors->matrix(name, shape);
    const bool as_it_lies = matrix.type == RawType::kF32 && uintptr_t(matrix.values) % alignof(float) == 0;
    return in_file && as_it_lies ? reinterpret_cast<const float*>(matrix.values) : nullptr;
  };
  read_weights(loaded.model->weights,
               {.names = names_of_weights(*tensors),
                .read = [&](const std::string& name, F32 into) { tensors->read(name, into); },
                .where = folder.string(),
                .look = [&](const std::string& name,
                            Shape shape) { check_format(tensors->matrix(name, shape), config, name, folder); },
                .lend = lend});
  return loaded;
}

}  // namespace

LoadedModel load_model(const fs::path& path) { return load(path, Matrices::kHere); }
LoadedModel load_for_generation(const fs::path& path) { return load(path, Matrices::kInFile); }

void forget_packed_weights(Model& model) {
  model.products.reset();
  model.forget_file();
  for (size_t i = 0; i < model.weights.list().size(); i++) {
    const F32 w = model.weights.at(i);
    if (is_matrix(model.weights.list()[i].kind) && !w.empty()) give_back(w.data, w.bytes());
  }
}

}  // namespace isobath
