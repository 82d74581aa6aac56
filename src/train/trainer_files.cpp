// A run's checkpoints: the model folder that other programs read, plus what makes the next step have the same bits.
#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/json.h"
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

constexpr int kStateVersion = 1;  // of state.json

// What state.json says. Everything is checked before anything of a Trainer is changed.
struct StoredState {
  int64_t step, sequences, tokens;
  double flops;
  uint64_t corpus;
  RunConfig options;
};

// count <= parts * size, of counts that a damaged file may hold
bool within(int64_t count, int64_t parts, int64_t size) {
  return count >= 0 && (count == 0 || (count - 1) / std::max<int64_t>(1, size) < parts);
}

StoredState read_state(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "state.json";
  require(fs::exists(path),
          "{} holds a model but no state of a training run (state.json is missing); nothing to resume",
          checkpoint.string());
  const std::string text = read_file(path, kConfigBytes);
  StoredState state;
  try {
    const Json json = parse_json(text, "it");
    require(json.at("version") == kStateVersion, "version {}, expected {}", json.at("version").dump(), kStateVersion);
    state.step = json.at("step");
    state.sequences = json.at("sequences");
    state.tokens = json.at("tokens");
    state.flops = json.at("flops");
    state.corpus = json.at("corpus");
    options_from_json(json.at("options"), state.options);
  } catch (const std::exception& error) {  // JSON's, or an option's
    fail("{}: not the state of a training run, or damaged ({}); resume from another checkpoint", path.string(),
         error.what());
  }
  const DataOptions& data = state.options.data;
  require(
      state.step >= 0 && state.step <= kMostSequences && state.flops >= 0 && state.sequences >= state.step &&
          within(state.sequences, state.step, data.batch) && within(state.tokens, state.sequences, data.context),
      "{}: {} steps, {} sequences and {} tokens do not go together, so it is damaged; resume from another checkpoint",
      path.string(), state.step, state.sequences, state.tokens);
  return state;
}

// What may differ in a resumed run: where things lie, how often it is looked at, how far it goes, what is computed
// twice rather than kept. With the budget the cosine of the rate is stretched too; anything else would make the steps
// so far another run's.
bool may_change(std::string_view key) {
  return key == "steps" || key == "tokens" || key == "flops" || key == "path" || key == "valid_path" ||
         key == "tokenizer" || key == "out" || key == "keep" || key == "threads" || key == "recompute" ||
         key == "pack" || key == "from" || key.starts_with("eval_") || key.starts_with("save_");
}

}  // namespace

RunConfig stored_options(const fs::path& checkpoint) { return read_state(checkpoint).options; }

void save_model(const fs::path& folder, const Model& model, const Tokenizer& tokenizer) {
  write_safetensors(folder / "model.safetensors", named(model.weights));
  tokenizer.save(folder);
  Json config = to_json(model.config());
  if (tokenizer.is_bytes()) config["tokenizer"] = "bytes";
  write_json(folder / "config.json", config);
}

FolderLock prepare_folder(const fs::path& out, const fs::path& resumed) {
  std::error_code error;
  fs::create_directories(out, error);
  if (error) fail("cannot make the folder {}: {}; name another one (--out)", out.string(), error.message());
  FolderLock lock(out);
  const bool own = !resumed.empty() && fs::equivalent(fs::canonical(resumed, error).parent_path(), out, error);
  if (!own && latest_checkpoint(out))
    fail("{} holds the checkpoints of another run; go on with it (--resume), or name another folder (--out)",
         out.string());
  if (!own && fs::exists(out / "config.json"))  // whose weights the run's checkpoints would hide
    fail("{} is the folder of a model; name another one for the run (--out)", out.string());
  require_writable(out);
  remove_unfinished(out);
  return lock;
}

fs::path Trainer::save(bool interrupted) {
  State& s = *state_;
  if (const std::string name = weight_not_finite(s.model.weights); !name.empty())
    fail_work("step {}: the weight {} is not finite and is not saved; the run has diverged: try a lower learning rate",
              s.step, name);
  const fs::path out = s.config.train.out;
  const auto write = [&](const fs::path& folder) {
    save_model(folder, s.model, s.tokenizer);
    std::vector<NamedTensor> moments = named(s.optimizer.first, "m.");
    for (NamedTensor& tensor : named(s.optimizer.second, "v.")) moments.push_back(std::move(tensor));
    write_safetensors(folder / "optimizer.safetensors", moments);
    write_json(folder / "state.json", {{"version", kStateVersion},
                                       {"isobath", ISOBATH_VERSION},
                                       {"step", s.step},
                                       {"steps", s.budget.steps},
                                       {"sequences", s.sequences},
                                       {"tokens", s.record.tokens},
                                       {"flops", s.spent},
                                       {"corpus", s.corpus_hash},
                                       {"interrupted", interrupted},
                                       {"options", options_to_json(s.config)}});
  };
  try {
    return s.saved = save_checkpoint(out, s.step, s.config.train.keep, write);
  } catch (...) {
    for (const SavedCheckpoint& c : list_checkpoints(out))
      if (c.step == s.step) s.saved = c.folder;  // whole; only the link to it is not
    throw;
  }
}

void Trainer::resume(const fs::path& checkpoint) {
  State& s = *state_;
  const StoredState state = read_state(checkpoint);
  const std::string where = (checkpoint / "state.json").string();
  require(state.corpus == s.corpus_hash,
          "{}: the run was trained on other text than {}; name the same text, or start a new run", where,
          s.config.data.path);
  const Json now = options_to_json(s.config), stored = options_to_json(state.options);
  for_each_option(s.config, [&](const char* section, const char* key, const auto&, auto) {
    const Json &had = stored[section][key], &has = now[section][key];
    require(may_change(key) || had == has,
            "{}: the run has {}.{} = {}, not {}; resume with the same value, or start a new run", where, section, key,
            had.dump(), has.dump());
  });
  require(state.step <= s.budget.steps,
          "{}: the run has done {} steps, more than its budget of {}; give a larger one (--steps, --tokens, --flops)",
          where, state.step, s.budget.steps);
  const TensorFolder folder(checkpoint);
  read_weights(s.model.weights, {folder.names(), [&](const std::string& name, F32 into) { folder.read(name, into); },
                                 checkpoint.string()});
  const TensorFolder moments(checkpoint / "optimizer.safetensors");
  read_moments(s.optimizer.first, moments, "m.");
  read_moments(s.optimizer.second, moments, "v.");
  s.record.step = s.step = state.step;
  s.sequences = state.sequences;
  s.record.tokens = state.tokens;
  s.record.flops = s.spent = state.flops;
  s.saved = checkpoint;
  s.set_capacity();
  s.model.products->pack(s.model.weights.weights());
}

}  // namespace isobath
