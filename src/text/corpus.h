// Text files to documents of tokens.
//
//   Corpus corpus = Corpus::load("prose/", Tokenizer::bytes());
//   corpus.train.size(), corpus.valid.document_begin(0)
//
// Reads, by name or content: plain text (.txt; a line <|endoftext|> ends a document, a file ends one too; bytes and
// line ends are kept as they are), JSONL (.jsonl; the "text" field), token shards of our own (.tokens), nanoGPT and
// llm.c shards (.bin), and folders of these (sorted by name, hidden files skipped, anything else refused). Documents
// are separated by one eos token, which ends each; empty documents are left out. Text is encoded without special
// tokens, so that eos stands at the end of documents only.
//
// Split: with fewer than 20 documents the last 5% of each (at least one token) is validation, and the piece before it
// ends in an eos of its own; else whole documents at even distances, 5% of them. A separate validation path replaces
// the split.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "text/tokenizer.h"

namespace isobath {

// Tokens of one split, documents back to back, each with its eos. Shards stay on disk, mapped. Copies share the tokens.
class TokenStream {
 public:
  struct State;
  TokenStream();  // without tokens
  explicit TokenStream(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  int64_t size() const;  // tokens
  int64_t documents() const;
  int64_t document_begin(int64_t document) const;          // document == documents(): size()
  int64_t document_at(int64_t token) const;                // the document that holds it, by bisection
  void read(int64_t begin, std::span<int32_t> out) const;  // tokens [begin, begin + out.size())
  int64_t text_bytes() const;  // bytes of text behind the tokens (decoded ones for shards of others): for bits per byte

 private:
  std::shared_ptr<const State> state_;
};

// A stream of documents in memory, eos added to each: what tests and examples train on.
TokenStream stream_of(std::span<const std::vector<int32_t>> documents, int32_t eos);

struct Corpus {
  TokenStream train, valid;
  uint64_t hash = 0;  // of tokenizer and tokens: a run resumes on the text that it began with

  // `path`: a file, or a folder of files. Held out for validation is valid_path; else the files of the folder that are
  // named so (a word of the name is val, valid or validation); else the last 5% of each document, or with 20 documents
  // and more one whole document in 20.
  // Throws Error naming the file, and the line of a JSONL file, on what it cannot read; on empty text; on a token
  // outside the tokenizer's vocabulary; on a shard of another tokenizer; on a split of fewer than two tokens.
  static Corpus load(const fs::path& path, const Tokenizer& tokenizer, const fs::path& valid_path = {});
};

// Writes a shard of our own: header (magic, version, width 2 or 4, tokenizer hash, tokens, documents, text bytes),
// document lengths, ids. Little-endian. Whole or not at all. Every document ends in the tokenizer's eos;
// document_begin has one entry a document and one past the end.
void write_shard(const fs::path& path, std::span<const int32_t> tokens, std::span<const int64_t> document_begin,
                 const Tokenizer& tokenizer, int64_t text_bytes);

}  // namespace isobath
