#include "text/tokenizer_files.h"

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer_json.h"

namespace isobath {
namespace {

using Json = nlohmann::json;
using State = Tokenizer::State;

constexpr const char *kTokenizer = "tokenizer.json", *kConfig = "tokenizer_config.json";
constexpr const char *kGpt2Vocab = "encoder.json", *kGpt2Merges = "vocab.bpe";

// f(), with the file named in whatever goes wrong.
template <class F>
auto naming(const fs::path& path, F f) {
  try {
    return f();
  } catch (const Json::exception& e) {
    fail("{}: {}", path.string(), e.what());
  } catch (const Error& e) {
    fail("{}: {}", path.string(), e.what());
  }
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Json read_beside(const fs::path& path) {
  if (!is_there(path)) return Json::object();
  Json json = parse_json(read_file(path, kConfigBytes), path.string());
  require(json.is_object(), "{}: expected a JSON object", path.string());
  return json;
}

// The id of a token with this text, -1: none.
int32_t id_of(const State& state, std::string_view token) {
  for (const bool special : {true, false})  // a special token before a word that reads the same
    for (size_t id = 0; id < state.pieces.size(); id++)
      if (state.special[id] == special && state.pieces[id] == token) return int32_t(id);
  return -1;
}

// "bos_token" as text or as {"content": text}.
int32_t named_token(const State& state, const Json& config, const std::string& key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return -1;
  const std::string name = found->is_object() ? found->at("content") : *found;
  const int32_t id = id_of(state, name);
  require(id >= 0, "{} is '{}', which is not a token", key, name);
  return id;
}

// "bos_token_id" as a number, or a list, of which the first counts.
int32_t numbered_token(const State& state, const Json& config, const std::string& key) {
  auto found = config.find(key);
  if (found == config.end() || found->is_null() || (found->is_array() && found->empty())) return -1;
  const auto id = (found->is_array() ? found->front() : *found).get<int64_t>();
  require(id >= 0 && id < int64_t(state.pieces.size()), "{} is {}, expected an id under {}", key, id,
          state.pieces.size());
  return int32_t(id);
}

struct Beside {
  // tokenizer_config.json, generation_config.json, config.json
  Json config = Json::object(), generation = Json::object(), model = Json::object();
  std::string config_bytes;
};

void find_end_tokens(State& state, const Json& config, std::initializer_list<const Json*> numbered) {
  const auto find = [&](const std::string& key, int32_t template_id, std::initializer_list<const char*> names) {
    int32_t id = naming(kConfig, [&] { return named_token(state, config, key); });
    for (const Json* json : numbered)
      if (id < 0) id = naming("config.json", [&] { return numbered_token(state, *json, key + "_id"); });
    if (id < 0) id = template_id;
    for (const char* name : names)
      if (id < 0) id = id_of(state, name);
    return id;
  };
  state.bos = find("bos_token", state.bos, {"<|begin_of_text|>", "<s>", "<|endoftext|>"});
  state.eos = find("eos_token", -1, {"<|end_of_text|>", "</s>", "<|endoftext|>"});
}

// Ordinary text never becomes one of these, whatever the file calls them.
void protect_end_tokens(State& state) {
  for (const int32_t id : {state.bos, state.eos}) {
    if (id < 0) continue;
    state.special[size_t(id)] = true;
    state.added.make_special(id);
    state.added_normalized.make_special(id);
  }
}

struct NamedBytes {
  std::string name, bytes;
};

// The tokenizer in the first of the files (with the second, if any), bos and eos by those beside it.
State assemble(const fs::path& file, const std::vector<NamedBytes>& files, const Beside& beside) {
  State state = naming(file, [&] {
    const Json root =
        files.size() == 2 ? gpt2_tokenizer_json(files[0].bytes, files[1].bytes) : parse_json(files[0].bytes, "it");
    State read = read_tokenizer_json(root);
    if (const auto found = root.find("post_processor"); found == root.end() || found->is_null())
      read.adds_bos = naming(kConfig, [&] { return beside.config.value("add_bos_token", false); });
    return read;
  });
  const int32_t template_bos = state.bos;
  find_end_tokens(state, beside.config, {});
  const std::pair alone{state.bos, state.eos};  // what the saved files will say by themselves
  state.bos = template_bos;
  find_end_tokens(state, beside.config, {&beside.generation, &beside.model});
  state.adds_bos = state.adds_bos && state.bos >= 0;
  protect_end_tokens(state);

  for (const auto& [name, bytes] : files) {
    state.hash = hash_bytes(fmt::format("{} {}", state.hash, hash_bytes(bytes)));
    state.files.emplace_back(name, bytes);
  }
  state.hash = hash_bytes(fmt::format("{} {} {} {}", state.hash, state.bos, state.eos, state.adds_bos));
  if (alone != std::pair{state.bos, state.eos}) {
    Json config = beside.config;
    if (state.bos >= 0) config["bos_token"] = state.pieces[size_t(state.bos)];
    if (state.eos >= 0) config["eos_token"] = state.pieces[size_t(state.eos)];
    state.files.emplace_back(kConfig, config.dump(2) + "\n");
  } else if (!beside.config_bytes.empty()) {
    state.files.emplace_back(kConfig, beside.config_bytes);
  }
  return state;
}

}  // namespace

State read_tokenizer_bytes(std::string_view tokenizer_json) {
  return assemble(kTokenizer, {{kTokenizer, std::string(tokenizer_json)}}, {});
}

State read_tokenizer_files(const fs::path& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? path : path.parent_path();
  const bool gpt2 = is_folder && !is_there(folder / kTokenizer) && is_there(folder / kGpt2Vocab);
  require(!is_folder || gpt2 || is_there(folder / kTokenizer),
          "{}: no tokenizer in the folder; expected tokenizer.json, or encoder.json and vocab.bpe", path.string());
  require(is_folder || is_there(path), "{}: no such tokenizer; expected bytes, a tokenizer.json or its folder",
          path.string());

  require(is_folder || path.extension() != ".model",
          "{}: SentencePiece models are not read; expected a tokenizer.json (transformers writes one: save_pretrained)",
          path.string());
  const fs::path file = gpt2 ? folder / kGpt2Vocab : is_folder ? folder / kTokenizer : path;
  std::vector<NamedBytes> files{{gpt2 ? kGpt2Vocab : kTokenizer, read_file(file, kTokenizerBytes)}};
  if (gpt2) files.push_back({kGpt2Merges, read_file(folder / kGpt2Merges, kTokenizerBytes)});
  const fs::path config = folder / kConfig;
  return assemble(file, files,
                  {read_beside(config), read_beside(folder / "generation_config.json"),
                   read_beside(folder / "config.json"), is_there(config) ? read_file(config, kConfigBytes) : ""});
}

}  // namespace isobath
