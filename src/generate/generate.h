// Text from a model: any number of prompts of any lengths, decoded together.
//
//   Generator generator(*loaded.model, loaded.tokenizer, {.sequences = 2});
//   generator.begin({{{.prompt = prompt_tokens(loaded.tokenizer, "Once upon a time")}}});
//   generator.run();
//   generator.result(0).text
//
// A step feeds every live sequence's unread tokens (its prompt at first, then the token drawn last) as one flat list of
// rows, in passes of at most max_rows, and draws one token for each. Rows are chosen by the model's causal rule alone,
// in the prompt too, so a sequence's tokens have the same bits alone, in any batch, in chunks or at once, and after a
// rollback. A step allocates nothing but what the caches grow by.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/kv_cache.h"
#include "generate/sampler.h"
#include "generate/text_stream.h"
#include "model/activations.h"
#include "model/model.h"
#include "model/selection.h"

namespace isobath {

struct GeneratorOptions {
  int64_t sequences = 1;   // the most that begin() will be given
  int64_t max_rows = 512;  // of one pass: longer prompts are read in chunks
  float depth = 0;         // added to the causal rule's logit: above 0 more blocks run, below 0 fewer
};

struct Request {
  std::vector<int32_t> prompt = {};  // at least one token: see prompt_tokens
  int64_t max_tokens = 256;
  std::vector<std::string> stop = {};  // the text ends before the first of these
  bool stop_at_eos = true;
  SamplerOptions sampling = {};
  int64_t id = 0;  // of router = random: names the sequence's numbers
};

enum class Finish : uint8_t {
  kNotYet,
  kEos,   // the model drew the end-of-text token (it is the last of tokens)
  kStop,  // a stop string
  kMaxTokens,
  kContext,  // max_position_embeddings tokens were read
};

struct Result {
  std::vector<int32_t> tokens;  // prompt, then everything drawn
  int64_t prompt_tokens = 0;
  std::string text;  // of the drawn tokens, without a stop string
  Finish finish = Finish::kNotYet;
  int64_t drawn() const { return int64_t(tokens.size()) - prompt_tokens; }
};

// What was done since begin().
struct LayerStatistics {
  int64_t rows = 0;                                                      // that went through the block
  int64_t kv_used_bytes = 0, kv_reserved_bytes = 0, kv_dense_bytes = 0;  // now; of a dense model with the same tokens
};
struct Statistics {
  int64_t prefill_tokens = 0, decode_tokens = 0;  // read in steps that read a prompt; in the others
  double prefill_seconds = 0, decode_seconds = 0;
  std::vector<LayerStatistics> layer;  // by section
  int64_t rows() const { return prefill_tokens + decode_tokens; }
  double share_run(size_t l) const { return rows() == 0 ? 0 : double(layer[l].rows) / double(rows()); }
  double prefill_tokens_per_second() const {
    return prefill_seconds > 0 ? double(prefill_tokens) / prefill_seconds : 0;
  }
  double decode_tokens_per_second() const { return decode_seconds > 0 ? double(decode_tokens) / decode_seconds : 0; }
};

// Tokens of a prompt: with bos before them where the tokenizer wants one or the text is empty.
std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text);

class Generator {
 public:
  using OnText = std::function<void(int64_t sequence, std::string_view piece)>;

  // Packs the model's weights. The model must outlive the generator and not change; one generator serves many begin().
  // Throws Error if the model has no causal rule.
  Generator(Model& model, const Tokenizer& tokenizer, const GeneratorOptions& options);

  // Forgets what came before: a request starts with empty caches. on_text is called with each piece of text as soon as
  // it is certain. Throws Error naming sequence, found and expected, before any work.
  void begin(std::span<const Request> requests, OnText on_text = {});
  bool step();  // one more token for every live sequence; returns whether one is left
  void run() {
    while (step()) continue;
  }

  // Drops the last n drawn tokens of a sequence, which goes on from there with the bits of one that never had them.
  // Text that on_text was given is not taken back; result().text is.
  void rollback(int64_t sequence, int64_t n);

  int64_t sequences() const { return int64_t(sequences_.size()); }
  const Result& result(int64_t sequence) const { return sequences_[size_t(sequence)].result; }
  CF32 logits(int64_t sequence) const;  // (V) that the last token was drawn from; valid until the next step
  Statistics statistics() const;
  const KvStore& cache() const { return cache_; }

 private:
  struct Sequence {
    Request request;
    Result result;
    TextStream stream;
    int64_t read = 0;   // tokens whose keys and values are in the caches
    int32_t next = -1;  // drawn in this step
    int64_t logits_row = 0;
    bool live() const { return result.finish == Finish::kNotYet; }
    bool reads_prompt() const { return read < result.prompt_tokens; }
    int64_t unread() const { return int64_t(result.tokens.size()) - read; }
  };
  // The rows of one pass; every sequence of the request has a run among them, which may be empty.
  struct Rows {
    std::vector<int32_t> token, position, sequence;  // (rows) of at most max_rows
    std::vector<int32_t> begin;                      // (sequences+1)
    std::vector<int32_t> last;                       // rows that end their sequence's tokens
    std::vector<int64_t> sequence_id;                // (sequences)
    Batch batch() const;
  };
  void check_request(const Request& request, size_t sequence) const;
  Sequence start(const Request& request) const;
  bool gather_rows();
  void run_pass(int64_t logits_row);
  void accept(int64_t sequence);
  void show(int64_t sequence, std::string_view piece);
  bool is_eos(int32_t token) const;

  const Model& model_;
  Tokenizer tokenizer_;
  GeneratorOptions options_;
  Activations acts_;
  Sampler sampler_;
  OnText on_text_;
  std::vector<Sequence> sequences_;
  KvStore cache_;
  Rows rows_;
  std::vector<float> logits_;  // (sequences, V) of a step
  Statistics done_;
};

}  // namespace isobath
