// The inside of a TokenStream: runs of tokens in several sources, in order.
#pragma once

#include <vector>

#include "text/token_source.h"

namespace isobath {

struct TokenStream::State {
  struct Run {
    TokenArray tokens;
    int64_t begin;  // of its first token in the stream
  };
  std::vector<Run> runs;
  std::vector<int64_t> document_begin;  // and the end
  std::vector<TokenSourcePtr> sources;  // kept alive
  int64_t text_bytes = 0;
  int32_t eos = -1;

  int64_t size() const { return document_begin.back(); }
};

class StreamBuilder {
 public:
  explicit StreamBuilder(int32_t eos);
  // A document made of tokens of the source, with an eos at its end: the one that follows in the source, or a new one.
  void add(const TokenSourcePtr& source, int64_t begin, int64_t end);
  TokenStream finish(int64_t text_bytes);

 private:
  void append(const TokenArray& tokens);
  std::shared_ptr<TokenStream::State> state_;
};

}  // namespace isobath
