// Text to tokens and back.
//
//   Tokenizer t = Tokenizer::load("bytes");                  // ids 0-255 are bytes, 256 is <|endoftext|>
//   Tokenizer t = Tokenizer::load("models/stories260K-hf");  // a folder with tokenizer.json, or the file itself
//
// Reads a Hugging Face tokenizer.json of the BPE kind: byte-level (GPT-2, Llama 3) and Llama style with byte fallback,
// merges as "a b" strings or ["a","b"] pairs; and a folder with GPT-2's own encoder.json and vocab.bpe. What would
// change the ids and is not built is refused by name.
//
// bos and eos come from the first of these beside the tokenizer that names them: tokenizer_config.json (text),
// generation_config.json and config.json (ids), the template in tokenizer.json, well-known names of special tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace isobath {

class Tokenizer {
 public:
  static Tokenizer load(const fs::path& name_or_path);          // "bytes", a tokenizer.json, or a folder that holds one
  static Tokenizer from_json(std::string_view tokenizer_json);  // the bytes of the file alone
  static Tokenizer bytes();
  bool is_bytes() const;

  // Ids of the text; no start or end token is added. With specials, the text of special tokens (greedy, longest first)
  // becomes their ids; without, it is ordinary text. Any bytes are taken: what is not UTF-8 becomes the ids of its
  // bytes (byte-level and byte fallback) or the unknown token.
  std::vector<int32_t> encode(std::string_view text, bool specials = true) const;
  // Bytes of the ids. Special tokens decode to nothing unless asked for, ids without a token to nothing. The blank
  // that Llama-style encoding puts before a text is removed at the start of a text (Decoder does the same once).
  std::string decode(std::span<const int32_t> ids, bool specials = false) const;

  int64_t vocab_size() const;  // one more than the largest id
  int32_t bos() const;         // put before a prompt, -1: none. Bytes: 256, used only for an empty prompt
  int32_t eos() const;         // ends a document, -1: none
  bool adds_bos() const;       // whether a text is encoded with bos before it (Llama style: yes; bytes: no)
  uint64_t hash() const;       // of the content: names the tokenizer in shard headers
  // The files that load() reads, so that a tokenizer loaded from the folder is the same (hash); nothing for bytes.
  void save(const fs::path& folder) const;

  struct State;

 private:
  explicit Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  friend class Decoder;
  friend class Encoder;
  std::shared_ptr<const State> state_;
};

// Many texts: remembers the words it has met. One per thread.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  Encoder(Encoder&&) noexcept;
  ~Encoder();
  void encode(std::string_view text, bool specials, std::vector<int32_t>& append_to);

 private:
  struct Memory;
  Tokenizer tokenizer_;
  std::unique_ptr<Memory> memory_;
};

// Streaming: tokens in, whole UTF-8 characters out. Bytes of an unfinished character wait for the next token.
class Decoder {
 public:
  explicit Decoder(const Tokenizer& tokenizer);
  std::string push(int32_t id);  // what can be shown now, possibly nothing; invalid bytes as U+FFFD
  std::string finish();          // what was left, invalid bytes as U+FFFD

 private:
  std::string take_whole();
  Tokenizer tokenizer_;
  std::string pending_;
  size_t to_strip_;  // blanks that still go from the start of the text
};

}  // namespace isobath
