// What is asked of an engine, and what comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/sampler.h"
#include "generate/statistics.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace isobath {

struct Request {
  std::vector<int32_t> prompt = {};  // at least one token: see prompt_tokens
  int64_t max_tokens = 256;
  std::vector<std::string> stop = {};  // the text ends before the first of these
  std::vector<int32_t> stop_tokens = {};
  bool stop_at_eos = true;
  SamplerOptions sampling = {};
  double seconds = 0;                     // from submit() on, then what is there is the answer; 0: as long as it takes
  int64_t sequence_id = 0;                // of router = random: names the sequence's numbers
  std::optional<int64_t> speculate = {};  // tokens drafted ahead, at most the engine's; left out: as many
};

enum class Finish : uint8_t {
  kNotYet,
  kEos,   // the model drew the end-of-text token (it is the last of tokens)
  kStop,  // a stop string or stop token
  kMaxTokens,
  kContext,  // max_position_embeddings tokens were read
  kCancelled,
  kDeadline,
};

struct Result {
  std::vector<int32_t> tokens = {};  // prompt, then everything drawn
  int64_t prompt_tokens = 0;
  std::string text = {};  // of the drawn tokens, without a stop string
  Finish finish = Finish::kNotYet;
  double first_token_s = 0, seconds = 0;  // since submit(): until the first token was drawn; until the end
  Speculation speculation = {};
  int64_t drawn() const { return int64_t(tokens.size()) - prompt_tokens; }
};

// Called while the engine steps. A listener may submit and cancel; it must not step or roll back.
struct Listener {
  std::function<void(const Result& result, CF32 logits)> on_token = {};  // the last of tokens was drawn from logits (V)
  std::function<void(std::string_view piece)> on_text = {};              // as soon as it is certain
  std::function<void(const Result& result)> on_finish = {};              // the last of all
};

// Tokens of a prompt: with bos before them where the tokenizer wants one or the text is empty.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text);

// Throws Error naming what was found and expected.
void check(const Request& request, const ModelConfig& config);

}  // namespace isobath
