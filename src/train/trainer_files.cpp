// A run's checkpoints: the model folder that other programs read, plus what makes the next step have the same bits.
#include <system_error>

#include "base/error.h"
#include "checkpoint/checkpoints.h"
#include "checkpoint/safetensors.h"
#include "model/names.h"
#include "train/trainer_state.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

std::vector<NamedTensor> named(const WeightSet& set, const std::string& prefix = "") {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < set.list().size(); i++) tensors.push_back({prefix + set.list()[i].name, set.at(i)});
  return tensors;
}

void read_moments(WeightSet& set, const TensorFolder& file, const std::string& prefix) {
  for (size_t i = 0; i < set.list().size(); i++) file.read(prefix + set.list()[i].name, set.at(i));
}

void write_json(const fs::path& path, const Json& json) { replace_file(path, json.dump(2) + "\n"); }

Json parse_state(const fs::path& path) {
  Json state = Json::parse(read_file(path), nullptr, false);
  require(state.is_object() && state.contains("step") && state.contains("sequences") && state.contains("options"),
          "{}: not the state of a training run, or damaged; resume from another checkpoint", path.string());
  return state;
}

}  // namespace

RunConfig stored_options(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "state.json";
  require(fs::exists(path), "{} holds a model but no state of a training run ({} is missing); nothing to resume",
          checkpoint.string(), path.filename().string());
  RunConfig config;
  try {
    options_from_json(parse_state(path)["options"], config);
  } catch (const nlohmann::json::exception&) {
    fail("{}: the options of the run are damaged; resume from another checkpoint", path.string());
  }
  return config;
}

void save_model(const fs::path& folder, const Model& model, const Tokenizer& tokenizer) {
  write_safetensors(folder / "model.safetensors", named(model.weights));
  tokenizer.save(folder);
  Json config = to_json(model.config());
  if (!fs::exists(folder / "tokenizer.json")) config["tokenizer"] = "bytes";
  write_json(folder / "config.json", config);
}

void prepare_folder(const fs::path& out, bool resumed) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail("cannot make the folder {}: {}", out.string(), error.message());
  remove_unfinished(out);
  if (!resumed && latest_checkpoint(out))
    fail("{} holds the checkpoints of another run; go on with it (--resume), or name another folder (--out)",
         out.string());
}

fs::path Trainer::save(bool interrupted) {
  State& s = *state_;
  s.saved = save_checkpoint(s.config.train.out, s.step, s.config.train.keep, [&](const fs::path& folder) {
    save_model(folder, s.model, s.tokenizer);
    std::vector<NamedTensor> moments = named(s.optimizer.first, "m.");
    for (NamedTensor& tensor : named(s.optimizer.second, "v.")) moments.push_back(std::move(tensor));
    write_safetensors(folder / "optimizer.safetensors", moments);
    write_json(folder / "state.json", {{"version", 1},
                                       {"isobath", ISOBATH_VERSION},
                                       {"step", s.step},
                                       {"steps", s.budget.steps},
                                       {"sequences", s.sequences},
                                       {"tokens", s.record.tokens},
                                       {"flops", s.spent},
                                       {"corpus", s.corpus_hash},
                                       {"interrupted", interrupted},
                                       {"options", options_to_json(s.config)}});
  });
  return s.saved;
}

void Trainer::resume(const fs::path& checkpoint) {
  State& s = *state_;
  const fs::path path = checkpoint / "state.json";
  const Json state = parse_state(path);
  require(state["corpus"] == s.corpus_hash,
          "{}: the run was trained on other text than {}; name the same text, or start a new run", path.string(),
          s.config.data.path);
  const Json now = options_to_json(s.config);
  for (const char* section : {"model", "routing", "data", "train"})
    for (const auto& [key, value] : now[section].items()) {
      const bool free = key == "path" || key == "valid_path" || key == "tokenizer" || key == "out" || key == "keep" ||
                        key == "threads" || key.starts_with("eval_") || key.starts_with("save_");
      const Json& stored = state["options"][section][key];
      require(free || stored == value,
              "{}: the run has {}.{} = {}, not {}; resume with the same value, or start a new run", path.string(),
              section, key, stored.dump(), value.dump());
    }
  const TensorFolder folder(checkpoint);
  read_weights(s.model.weights, {folder.names(), [&](const std::string& name, F32 into) { folder.read(name, into); },
                                 checkpoint.string()});
  const TensorFolder moments(checkpoint / "optimizer.safetensors");
  read_moments(s.optimizer.first, moments, "m.");
  read_moments(s.optimizer.second, moments, "v.");
  s.step = state["step"];
  s.sequences = state["sequences"];
  s.record.tokens = state["tokens"];
  s.record.step = s.step;
  s.record.flops = s.spent = state["flops"];
  s.saved = checkpoint;
  s.model.products->pack(s.model.weights.weights());
}

}  // namespace isobath
