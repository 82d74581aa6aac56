// Where a corpus gets its tokens from: one file, read whole into memory or mapped.
#pragma once

#include <bit>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "text/corpus.h"

namespace isobath {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and are used as they lie");

// Ids of two or four bytes each, somewhere in memory.
struct TokenArray {
  const std::byte* at = nullptr;
  int width = 2;
  int64_t size = 0;

  int32_t operator[](int64_t i) const { return width == 2 ? load<uint16_t>(i) : load<int32_t>(i); }
  void read(int64_t begin, std::span<int32_t> out) const;
  TokenArray slice(int64_t begin, int64_t count) const { return {at + begin * width, width, count}; }

 private:
  template <class T>
  T load(int64_t i) const {
    T value;
    std::memcpy(&value, at + i * int64_t(sizeof(T)), sizeof(T));
    return value;
  }
};

struct TokenSource {
  struct Document {
    int64_t begin, end;  // without its eos, which is the token at `end` where the source holds one
  };
  TokenArray tokens;
  std::vector<Document> documents;
  int64_t text_bytes = 0;

  std::vector<std::byte> memory;  // what `tokens` points into: this, or the file
  MappedFile file;

  // For sources in memory: tokens of a document piece by piece, then its eos; a document without tokens is left out.
  void append(std::span<const int32_t> ids);
  void end_document(int32_t eos);

  // Bytes of text behind tokens of one document.
  int64_t decoded_bytes(int64_t begin, int64_t end, bool mid_document, const Tokenizer& tokenizer) const;
};

using TokenSourcePtr = std::shared_ptr<const TokenSource>;

// By the ending of the name: .txt, .jsonl, .tokens, .bin. A file of another name is text if it holds no zero byte: one
// that is named is read, but a folder that holds one is refused.
bool is_corpus_file(const fs::path& path);
TokenSourcePtr read_source(const fs::path& path, const Tokenizer& tokenizer);

// The same from bytes; `path` is for messages.
TokenSource read_text(std::string_view bytes, const Tokenizer& tokenizer);
TokenSource read_jsonl(std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer);
// These two point into the bytes.
TokenSource read_shard(std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer);
TokenSource read_foreign_shard(std::string_view bytes, const fs::path& path, const Tokenizer& tokenizer);

}  // namespace isobath
