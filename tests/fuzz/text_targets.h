// What readers of the text room do with any bytes: work, or throw Error. Anything else is a bug. Shared by the fuzzers
// (libFuzzer calls them with bytes of its own) and by a test that damages valid input.
#pragma once

#include <cstdlib>

#include "base/error.h"
#include "text/token_source.h"
#include "text/tokenizer.h"

namespace isobath::fuzz {

inline void tokenizer_json(std::string_view bytes) {
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(bytes);
    const std::string text = "Hello <s>w\u00F6rld</s>\n  123 \xff\xc3";
    const auto ids = tokenizer.encode(text);
    for (const int32_t id : ids)
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
    tokenizer.decode(ids, true);
  } catch (const Error&) {
  }
}

inline void check_source(const TokenSource& source, const Tokenizer& tokenizer) {
  int64_t end = 0;
  for (const auto& d : source.documents) {
    if (d.begin < end || d.end <= d.begin || d.end > source.tokens.size) std::abort();
    for (int64_t i = d.begin; i < d.end; i++)
      if (source.tokens[i] < 0 || source.tokens[i] >= tokenizer.vocab_size()) std::abort();
    end = d.end;
  }
}

inline const Tokenizer& byte_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::bytes();
  return tokenizer;
}

inline void jsonl(std::string_view bytes) {
  try {
    check_source(read_jsonl(bytes, "fuzz.jsonl", byte_tokenizer()), byte_tokenizer());
  } catch (const Error&) {
  }
}

inline void shard(std::string_view bytes) {
  const Tokenizer& tokenizer = byte_tokenizer();
  for (const auto read : {read_shard, read_foreign_shard}) {
    try {
      check_source(read(bytes, "fuzz.bin", tokenizer), tokenizer);
    } catch (const Error&) {
    }
  }
}

}  // namespace isobath::fuzz
