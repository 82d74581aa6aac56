#include "generate/request.h"

#include "base/error.h"

namespace isobath {

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if ((tokenizer.adds_bos() || ids.empty()) && tokenizer.bos() >= 0) ids.insert(ids.begin(), tokenizer.bos());
  require(!ids.empty(), "the prompt is empty and the tokenizer has no start token; give a prompt");
  return ids;
}

void check(const Request& r, const ModelConfig& c) {
  require(!r.prompt.empty(), "the prompt has no token, expected at least a start token");
  require(int64_t(r.prompt.size()) <= c.max_position_embeddings,
          "the prompt has {} tokens, the model's context {} (max_position_embeddings); shorten it", r.prompt.size(),
          c.max_position_embeddings);
  for (const int32_t id : r.prompt)
    require(id >= 0 && id < c.vocab_size, "token {} is outside the model's vocabulary of {}", id, c.vocab_size);
  require(r.max_tokens >= 1, "max_tokens is {}, expected 1 or more", r.max_tokens);
  for (const std::string& s : r.stop) require(!s.empty(), "a stop string is empty, expected at least one character");
  require(r.seconds >= 0, "seconds is {}, expected 0 (as long as it takes) or more", r.seconds);
  require(r.sequence_id >= 0 && r.sequence_id < int64_t{1} << 39, "sequence_id is {}, expected 0 to 2^39 - 1",
          r.sequence_id);
  require(r.speculate.value_or(0) >= 0, "speculate is {}, expected 0 (no drafts) or more", r.speculate.value_or(0));
  check(r.sampling);
}

}  // namespace isobath
