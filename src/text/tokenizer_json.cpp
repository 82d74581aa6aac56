#include "text/tokenizer_json.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "text/utf8.h"

namespace isobath {
namespace {

using Json = nlohmann::json;
using State = Tokenizer::State;

constexpr int64_t kMaxId = 1 << 22;  // four times the largest vocabulary known; bounds what a file can make us allocate

// GPT-2's cut of a text into words, published with its weights; what ByteLevel uses unless told otherwise.
constexpr const char* kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The value under the key, or null where it is missing.
const Json& at(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}
bool flag(const Json& object, const char* key, bool missing) {
  const Json& value = at(object, key);
  return value.is_null() ? missing : value.get<bool>();
}
std::string type_of(const Json& part) { return at(part, "type").get<std::string>(); }

// Visits the members of a "Sequence", or the part itself; nothing for null.
template <class Visit>
void for_each_part(const Json& part, const char* members, Visit visit) {
  if (part.is_null()) return;
  if (type_of(part) != "Sequence") return visit(part);
  for (const Json& member : part.at(members)) for_each_part(member, members, visit);
}

// ---- The alphabet of byte-level vocabularies: a byte is written as one printable character.

std::array<uint32_t, 256> byte_characters() {
  std::array<uint32_t, 256> code{};
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; b++) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    code[b] = printable ? b : next++;
  }
  return code;
}

// The bytes that a byte-level token stands for; a token with other characters stands for itself.
std::string bytes_of(const std::string& token) {
  static const std::vector<int16_t> byte_of = [] {
    std::vector<int16_t> table(512, -1);
    const auto code = byte_characters();
    for (size_t b = 0; b < 256; b++) table[code[b]] = int16_t(b);
    return table;
  }();
  std::string bytes;
  for (size_t i = 0; i < token.size();) {
    const Utf8Char c = utf8_front(std::string_view(token).substr(i));
    if (c.code >= byte_of.size() || byte_of[c.code] < 0) return token;
    bytes.push_back(char(uint8_t(byte_of[c.code])));
    i += c.size;
  }
  return bytes;
}

// ---- Steps before the model

void read_normalizer(State& state, const Json& part) {
  for_each_part(part, "normalizers", [&](const Json& step) {
    const std::string type = type_of(step);
    if (type == "Prepend") {
      state.normalizer.push_back({Rewrite::Kind::kPrepend, "", step.at("prepend")});
    } else if (type == "Replace") {
      const Json& from = at(step.at("pattern"), "String");
      require(from.is_string() && from != "",
              "normalizer Replace with a pattern that is not a plain string is not built");
      state.normalizer.push_back({Rewrite::Kind::kReplace, from, step.at("content")});
    } else {
      fail("normalizer {} is not built; known are Prepend, Replace and Sequence", type);
    }
  });
}

void read_metaspace(State& state, const Json& step) {
  require(state.splitters.empty(), "pre_tokenizer Metaspace behind another one is not built");
  const std::string mark = step.at("replacement");
  const Json& scheme = at(step, "prepend_scheme");
  const std::string prepend = scheme.is_string()                     ? std::string(scheme)
                              : flag(step, "add_prefix_space", true) ? "always"
                                                                     : "never";
  require(prepend == "always" || prepend == "first" || prepend == "never",
          "pre_tokenizer Metaspace with prepend_scheme {} is not built", prepend);
  state.marks.push_back({Rewrite::Kind::kReplace, " ", mark});
  if (prepend == "always") state.marks.push_back({Rewrite::Kind::kPrependIfMissing, "", mark});
  if (prepend == "first") state.marks.push_back({Rewrite::Kind::kPrependIfMissingAtStart, "", mark});
  // Each mark begins a piece.
  if (flag(step, "split", true))
    state.splitters.push_back(
        {SplitPattern("(?s)\\Q" + mark + "\\E((?!\\Q" + mark + "\\E).)*+", SplitPattern::Kind::kRegex)});
}

void read_split(State& state, const Json& step) {
  const Json& pattern = step.at("pattern");
  const bool regex = pattern.contains("Regex");
  const std::string behavior = step.at("behavior");
  const bool invert = flag(step, "invert", false), removed = behavior == "Removed";
  require(removed || behavior == "Isolated",
          "pre_tokenizer Split with behavior {} is not built; known are Isolated and "
          "Removed",
          behavior);
  state.splitters.push_back({SplitPattern(pattern.at(regex ? "Regex" : "String"),
                                          regex ? SplitPattern::Kind::kRegex : SplitPattern::Kind::kLiteral),
                             !removed || invert, !removed || !invert});
}

// Returns whether the model works on bytes.
bool read_pre_tokenizer(State& state, const Json& part) {
  bool byte_level = false;
  for_each_part(part, "pretokenizers", [&](const Json& step) {
    const std::string type = type_of(step);
    require(!byte_level, "pre_tokenizer {} behind ByteLevel is not built", type);
    if (type == "ByteLevel") {
      byte_level = true;
      if (flag(step, "add_prefix_space", true)) {
        require(state.splitters.empty(),
                "pre_tokenizer ByteLevel with add_prefix_space behind another one is not built");
        state.marks.push_back({Rewrite::Kind::kPrependIfMissing, "", " "});
      }
      if (flag(step, "use_regex", true))
        state.splitters.push_back({SplitPattern(kGpt2Pattern, SplitPattern::Kind::kRegex)});
    } else if (type == "Split") {
      read_split(state, step);
    } else if (type == "Digits") {
      const bool each = flag(step, "individual_digits", false);
      state.splitters.push_back({SplitPattern(each ? "\\p{N}" : "\\p{N}+", SplitPattern::Kind::kRegex)});
    } else if (type == "Metaspace") {
      read_metaspace(state, step);
    } else {
      fail("pre_tokenizer {} is not built; known are ByteLevel, Split, Digits, Metaspace and Sequence", type);
    }
  });
  return byte_level;
}

// ---- The model

Bpe::Merges read_merges(const Json& list, bool byte_level) {
  Bpe::Merges merges;
  merges.reserve(list.size());
  for (const Json& merge : list) {
    std::string left, right;
    if (merge.is_array()) {
      require(merge.size() == 2, "merge {} has {} parts, expected 2", merges.size(), merge.size());
      left = merge[0], right = merge[1];
    } else {
      const std::string& pair = merge.get_ref<const std::string&>();
      const size_t blank = pair.find(' ');
      require(blank != pair.npos && pair.find(' ', blank + 1) == pair.npos, "merge {} is '{}', expected two parts",
              merges.size(), pair);
      left = pair.substr(0, blank), right = pair.substr(blank + 1);
    }
    merges.emplace_back(byte_level ? bytes_of(left) : left, byte_level ? bytes_of(right) : right);
  }
  return merges;
}

int32_t read_id(const Json& value, const std::string& token) {
  const auto id = value.get<int64_t>();
  require(value.is_number_integer() && id >= 0 && id < kMaxId, "token '{}' has the id {}, expected 0 to {}", token, id,
          kMaxId - 1);
  return int32_t(id);
}

void read_model(State& state, const Json& model, bool byte_level) {
  const Json& type = at(model, "type");  // old files leave it out
  require(type.is_null() ? model.contains("merges") : type == "BPE", "model {} is not built; only BPE is",
          type.is_string() ? std::string(type) : "without a type");
  const Json& dropout = at(model, "dropout");
  require(dropout.is_null() || dropout == 0, "model with dropout is not built: ids would be random");
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    require(at(model, affix).is_null() || at(model, affix) == "", "model with {} is not built", affix);

  const Json& tokens = model.at("vocab");
  require(tokens.is_object(), "the vocabulary is not an object of tokens and ids");
  Vocabulary vocabulary;
  vocabulary.reserve(tokens.size());
  for (const auto& [token, value] : tokens.items()) {
    const int32_t id = read_id(value, token);
    if (size_t(id) >= state.pieces.size()) state.pieces.resize(size_t(id) + 1);
    state.pieces[size_t(id)] = token;
    vocabulary.emplace(byte_level ? bytes_of(token) : token, id);
  }
  BpeOptions options{.byte_level = byte_level,
                     .byte_fallback = flag(model, "byte_fallback", false),
                     .fuse_unk = flag(model, "fuse_unk", false),
                     .ignore_merges = flag(model, "ignore_merges", false)};
  if (const Json& unk = at(model, "unk_token"); !unk.is_null()) {
    const auto found = tokens.find(unk.get<std::string>());
    if (found != tokens.end()) options.unk = read_id(*found, "unk_token");
  }
  state.bpe.emplace(std::move(vocabulary), read_merges(model.at("merges"), byte_level), options);
}

// ---- From ids to text

bool is_byte_token(const std::string& token) {
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f'); };
  return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' && hex(token[3]) && hex(token[4]);
}

// Turns the tokens into what they decode to. The parts known here work on each token alone, but for what is stripped
// from the start of the text.
void read_decoder(State& state, const Json& part, bool byte_level) {
  require(byte_level || !part.is_null(), "decoder null is not built but for ByteLevel");
  if (byte_level)
    for (auto& piece : state.pieces) piece = bytes_of(piece);
  for_each_part(part, "decoders", [&](const Json& step) {
    const std::string type = type_of(step);
    require((type == "ByteLevel") == byte_level || type == "Fuse",
            "decoder {} does not fit the pre_tokenizer: both or neither must be ByteLevel", type);
    if (type == "Replace" || type == "Metaspace") {
      const bool metaspace = type == "Metaspace";
      const Json& from = metaspace ? step.at("replacement") : at(step.at("pattern"), "String");
      require(from.is_string() && from != "", "decoder Replace with a pattern that is not a plain string is not built");
      const std::vector<Rewrite> change{
          {Rewrite::Kind::kReplace, from, metaspace ? " " : std::string(step.at("content"))}};
      for (auto& piece : state.pieces) piece = rewrite(piece, change, false);
      if (metaspace && at(step, "prepend_scheme") != "never" && flag(step, "add_prefix_space", true)) state.strip = 1;
    } else if (type == "ByteFallback") {
      for (auto& piece : state.pieces)
        if (is_byte_token(piece)) piece = std::string(1, char(uint8_t(std::stoi(piece.substr(3, 2), nullptr, 16))));
    } else if (type == "Strip") {
      require(step.at("content") == " " && step.at("stop") == 0,
              "decoder Strip of anything but leading blanks is not built");
      state.strip = step.at("start").get<size_t>();
    } else if (type != "ByteLevel" && type != "Fuse") {
      fail("decoder {} is not built; known are ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace and Sequence",
           type);
    }
  });
}

void read_added_tokens(State& state, const Json& list) {
  for (const Json& entry : list) {
    const std::string content = entry.at("content");
    const int32_t id = read_id(entry.at("id"), content);
    const bool special = flag(entry, "special", false), normalized = flag(entry, "normalized", !special);
    require(!flag(entry, "single_word", false), "added token '{}' with single_word is not built", content);
    if (size_t(id) >= state.pieces.size()) state.pieces.resize(size_t(id) + 1);
    state.special.resize(state.pieces.size());
    state.pieces[size_t(id)] = content;
    state.special[size_t(id)] = special;
    (normalized ? state.added_normalized : state.added)
        .add({normalized ? rewrite(content, state.normalizer, true) : content, id, special,
              flag(entry, "lstrip", false), flag(entry, "rstrip", false)});
  }
  state.special.resize(state.pieces.size());
}

// The template for one text: at most one token before it, which is then bos. A token behind the text ends documents,
// which is the corpus's work.
void read_post_processor(State& state, const Json& part) {
  for_each_part(part, "processors", [&](const Json& step) {
    const std::string type = type_of(step);
    if (type == "ByteLevel") return;  // concerns offsets only
    require(type == "TemplateProcessing", "post_processor {} is not built; known are TemplateProcessing and ByteLevel",
            type);
    for (const Json& item : step.at("single")) {
      if (item.contains("Sequence")) break;
      const std::string name = item.at("SpecialToken").at("id");
      const Json& ids = step.at("special_tokens").at(name).at("ids");
      require(!state.adds_bos && ids.size() == 1, "post_processor with several tokens before the text is not built");
      state.bos = read_id(ids[0], name);
      require(size_t(state.bos) < state.pieces.size(), "post_processor puts the id {} first, which is not a token",
              state.bos);
      state.adds_bos = true;
    }
  });
}

}  // namespace

State read_tokenizer_json(const Json& root) {
  require(root.is_object(), "expected a JSON object");
  State state;
  read_normalizer(state, at(root, "normalizer"));
  const bool byte_level = read_pre_tokenizer(state, at(root, "pre_tokenizer"));
  read_model(state, root.at("model"), byte_level);
  read_decoder(state, at(root, "decoder"), byte_level);
  read_added_tokens(state, at(root, "added_tokens"));
  read_post_processor(state, at(root, "post_processor"));
  require(!state.pieces.empty(), "the vocabulary is empty");
  return state;
}

Json gpt2_tokenizer_json(std::string_view encoder_json, std::string_view vocab_bpe) {
  Json vocab = parse_json(encoder_json, "it"), merges = Json::array();
  while (!vocab_bpe.empty()) {
    const std::string_view line = vocab_bpe.substr(0, vocab_bpe.find('\n'));
    vocab_bpe.remove_prefix(std::min(vocab_bpe.size(), line.size() + 1));
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  }
  const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const Json end{{"content", "<|endoftext|>"}, {"id", vocab.at("<|endoftext|>")}, {"special", true}};
  return {{"model", {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", std::move(merges)}}},
          {"pre_tokenizer", byte_level},
          {"decoder", byte_level},
          {"added_tokens", Json::array({end})}};
}

}  // namespace isobath
