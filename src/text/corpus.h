// Text files to documents of tokens.
//
//   Corpus corpus = Corpus::load("prose/", Tokenizer::bytes());
//   corpus.train.size(), corpus.valid.document_begin
//
// Reads, by name or content: plain text (.txt; a line <|endoftext|> ends a document, a file ends one too), JSONL
// (.jsonl; the "text" field), token shards of our own (.tokens), nanoGPT and llm.c shards (.bin), and folders of these
// (sorted by name, hidden files skipped). Documents are separated by one eos token, which ends each.
// Split: with fewer than 20 documents the last 5% of each is validation, else whole documents, at even distances, 5%
// of the documents. A separate validation path replaces the split.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/tokenizer.h"

namespace isobath {

// Tokens of one split, documents back to back, each with its eos. Shards stay on disk, mapped.
class TokenStream {
 public:
  int64_t size() const;                        // tokens
  int64_t documents() const;
  int64_t document_begin(int64_t document) const;  // document == documents(): size()
  void read(int64_t begin, std::span<int32_t> out) const;  // tokens [begin, begin + out.size())
  int64_t text_bytes() const;                  // bytes of text behind the tokens, 0 if unknown: for bits per byte

  struct State;
  std::shared_ptr<const State> state;
};

struct Corpus {
  TokenStream train, valid;
  uint64_t hash = 0;  // of tokenizer and content sizes: a run resumes on the text that it began with

  // Throws Error naming the file, and the line of a JSONL file, on what it cannot read; on empty text; on a token
  // outside the tokenizer's vocabulary; on a shard of another tokenizer.
  static Corpus load(const fs::path& path, const Tokenizer& tokenizer, const fs::path& valid_path = {});
};

// Writes a shard of our own: header (magic, version, width 2 or 4, tokenizer hash, tokens, documents), document
// lengths, ids. Little-endian. Whole or not at all.
void write_shard(const fs::path& path, std::span<const int32_t> tokens, std::span<const int64_t> document_begin,
                 const Tokenizer& tokenizer, int64_t text_bytes);

}  // namespace isobath
