#include "generate/generate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "model/network.h"

namespace isobath {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// No pass has more rows than all contexts together.
GeneratorOptions resolved(GeneratorOptions o, const ModelConfig& config) {
  require(o.sequences >= 1, "generate: room for {} sequences, expected 1 or more", o.sequences);
  require(o.max_rows >= 1, "generate: max_rows is {}, expected 1 or more", o.max_rows);
  require(!std::isnan(o.depth), "generate: depth is not a number; 0 runs the model as trained");
  require(
      config.has_causal_rule(),
      "this model was trained with causal = none and has no causal rule to generate with; train it with causal = bce, "
      "predictor or threshold");
  o.max_rows = std::min(o.max_rows, o.sequences * config.max_position_embeddings);
  return o;
}

}  // namespace

std::vector<int32_t> prompt_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text);
  if ((tokenizer.adds_bos() || ids.empty()) && tokenizer.bos() >= 0) ids.insert(ids.begin(), tokenizer.bos());
  require(!ids.empty(), "the prompt is empty and the tokenizer has no start token; give a prompt");
  return ids;
}

Generator::Generator(Model& model, const Tokenizer& tokenizer, const GeneratorOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(resolved(options, model.config())),
      acts_(model.config(), {.sequences = 1, .T = options_.max_rows, .max_documents = options_.sequences},
            Purpose::kForward),
      sampler_(model.config().vocab_size),
      cache_(model.config(), 0),
      logits_(size_t(options_.sequences * model.config().vocab_size)) {
  model.prepare(options_.max_rows, false, {std::min(options_.sequences, options_.max_rows)});
  for (std::vector<int32_t>* rows : {&rows_.token, &rows_.position, &rows_.sequence})
    rows->reserve(size_t(options_.max_rows));
  rows_.begin.reserve(size_t(options_.sequences + 1));
  rows_.last.reserve(size_t(options_.sequences));
}

void Generator::check_request(const Request& r, size_t sequence) const {
  const ModelConfig& c = model_.config();
  require(!r.prompt.empty(), "prompt {} has no token, expected at least a start token", sequence);
  require(int64_t(r.prompt.size()) <= c.max_position_embeddings,
          "prompt {} has {} tokens, the model's context {} (max_position_embeddings); shorten it", sequence,
          r.prompt.size(), c.max_position_embeddings);
  for (const int32_t id : r.prompt)
    require(id >= 0 && id < c.vocab_size, "prompt {}: token {} is outside the model's vocabulary of {}", sequence, id,
            c.vocab_size);
  require(r.max_tokens >= 1, "max_tokens of prompt {} is {}, expected 1 or more", sequence, r.max_tokens);
  require(r.id >= 0 && r.id < int64_t{1} << 39, "id of prompt {} is {}, expected 0 to 2^39 - 1", sequence, r.id);
  check(r.sampling);
}

Generator::Sequence Generator::start(const Request& request) const {
  Sequence s{request, {}, TextStream(tokenizer_, request.prompt, request.stop)};
  s.result.tokens = request.prompt;
  s.result.prompt_tokens = int64_t(request.prompt.size());
  const int64_t room = model_.config().max_position_embeddings + 1 - s.result.prompt_tokens;
  const size_t most = size_t(std::min(request.max_tokens, room));
  s.result.tokens.reserve(request.prompt.size() + most);
  s.result.text.reserve(8 * most);
  return s;
}

void Generator::begin(std::span<const Request> requests, OnText on_text) {
  require(!requests.empty() && int64_t(requests.size()) <= options_.sequences, "generate: {} prompts, expected 1 to {}",
          requests.size(), options_.sequences);
  std::vector<Sequence> sequences;
  sequences.reserve(requests.size());
  for (size_t b = 0; b < requests.size(); b++) {
    check_request(requests[b], b);
    sequences.push_back(start(requests[b]));
  }
  sequences_ = std::move(sequences);
  on_text_ = std::move(on_text);
  cache_ = KvStore(model_.config(), int64_t(requests.size()));
  rows_.sequence_id.clear();
  for (const Request& request : requests) rows_.sequence_id.push_back(request.id);
  done_ = {};
  done_.layer.resize(size_t(model_.config().sections()));
}

Batch Generator::Rows::batch() const {
  return {.token = view_of(token),
          .target = {},
          .position = view_of(position),
          .capacity_begin = view_of(begin),
          .segment_begin = view_of(begin),
          .sequence = view_of(sequence),
          .sequence_id = view_of(sequence_id)};
}

// The next unread tokens, sequence by sequence, as many as a pass takes. False when all are read.
bool Generator::gather_rows() {
  for (std::vector<int32_t>* rows : {&rows_.token, &rows_.position, &rows_.sequence, &rows_.begin, &rows_.last})
    rows->clear();
  rows_.begin.push_back(0);
  for (size_t b = 0; b < sequences_.size(); b++) {
    Sequence& s = sequences_[b];
    const int64_t room = options_.max_rows - int64_t(rows_.token.size());
    const int64_t count = s.live() ? std::min(s.unread(), room) : 0;
    for (int64_t i = 0; i < count; i++, s.read++) {
      rows_.token.push_back(s.result.tokens[size_t(s.read)]);
      rows_.position.push_back(int32_t(s.read));
      rows_.sequence.push_back(int32_t(b));
    }
    rows_.begin.push_back(int32_t(rows_.token.size()));
    if (count > 0 && s.unread() == 0) rows_.last.push_back(rows_.begin.back() - 1);
    if (count > 0) cache_.reserve(int64_t(b), count);
  }
  return !rows_.token.empty();
}

// One pass over the gathered rows; draws a token for the sequences that it read to the end.
void Generator::run_pass(int64_t logits_row) {
  const ModelConfig& config = model_.config();
  const Batch batch = rows_.batch();
  forward_blocks(model_.weights.weights(), *model_.products, acts_, config, batch,
                 {.by = SelectBy::kCausal, .depth = options_.depth}, cache_.view());
  for (size_t l = 0; l < done_.layer.size(); l++)
    done_.layer[l].rows += config.section(int64_t(l)).routed ? acts_.block[l].router.list.rows : batch.rows();

  const F32 logits{logits_.data(), {options_.sequences, config.vocab_size}};
  const F32 drawn_from = logits.slice(logits_row, int64_t(rows_.last.size()));
  forward_logits(drawn_from, model_.weights.weights(), *model_.products, acts_, config, view_of(rows_.last));
  for (const int32_t row : rows_.last) {
    Sequence& s = sequences_[size_t(rows_.sequence[size_t(row)])];
    s.logits_row = logits_row++;
    s.next = sampler_.sample(logits.slice(s.logits_row, 1).reshaped({config.vocab_size}), s.request.sampling,
                             int64_t(s.result.tokens.size()));
  }
}

bool Generator::step() {
  const auto start = std::chrono::steady_clock::now();
  bool prompt = false;
  for (const Sequence& s : sequences_) prompt |= s.live() && s.reads_prompt();
  int64_t rows = 0, drawn = 0;
  for (; gather_rows(); drawn += int64_t(rows_.last.size())) {
    run_pass(drawn);
    rows += int64_t(rows_.token.size());
  }
  bool live = false;
  for (size_t b = 0; b < sequences_.size(); b++) {
    if (sequences_[b].live()) accept(int64_t(b));
    live |= sequences_[b].live();
  }
  if (prompt) cache_.fit();
  (prompt ? done_.prefill_tokens : done_.decode_tokens) += rows;
  (prompt ? done_.prefill_seconds : done_.decode_seconds) += seconds_since(start);
  return live;
}

bool Generator::is_eos(int32_t token) const {
  const std::vector<int64_t>& ids = model_.config().eos_token_id;
  return token == tokenizer_.eos() || std::find(ids.begin(), ids.end(), token) != ids.end();
}

void Generator::show(int64_t sequence, std::string_view piece) {
  if (piece.empty()) return;
  sequences_[size_t(sequence)].result.text += piece;
  if (on_text_) on_text_(sequence, piece);
}

// The token that was drawn becomes part of the sequence.
void Generator::accept(int64_t sequence) {
  Sequence& s = sequences_[size_t(sequence)];
  Result& r = s.result;
  r.tokens.push_back(s.next);
  if (s.request.stop_at_eos && is_eos(s.next))
    r.finish = Finish::kEos;
  else
    show(sequence, s.stream.push(s.next));
  if (s.stream.stopped())
    r.finish = Finish::kStop;
  else if (s.live() && r.drawn() == s.request.max_tokens)
    r.finish = Finish::kMaxTokens;
  else if (s.live() && int64_t(r.tokens.size()) > model_.config().max_position_embeddings)
    r.finish = Finish::kContext;
  if (!s.live()) show(sequence, s.stream.finish());
}

void Generator::rollback(int64_t sequence, int64_t n) {
  require(sequence >= 0 && sequence < sequences(), "rollback: sequence {} of {}", sequence, sequences());
  Sequence& s = sequences_[size_t(sequence)];
  Result& r = s.result;
  require(n >= 0 && n <= r.drawn(), "rollback: {} tokens of sequence {}, which drew {}", n, sequence, r.drawn());
  if (n == 0) return;
  r.tokens.resize(r.tokens.size() - size_t(n));
  s.read = std::min(s.read, int64_t(r.tokens.size()) - 1);  // the last token is read again: its logits are gone
  cache_.rollback(sequence, s.read);
  s.stream = TextStream(tokenizer_, s.request.prompt, s.request.stop);
  r.text.clear();
  r.finish = Finish::kNotYet;
  for (int64_t i = r.prompt_tokens; i < int64_t(r.tokens.size()); i++) r.text += s.stream.push(r.tokens[size_t(i)]);
}

CF32 Generator::logits(int64_t sequence) const {
  const int64_t V = model_.config().vocab_size;
  return {logits_.data() + sequences_[size_t(sequence)].logits_row * V, {V}};
}

Statistics Generator::statistics() const {
  Statistics s = done_;
  int64_t tokens = 0;
  for (const Sequence& sequence : sequences_) tokens += sequence.read;
  for (size_t l = 0; l < s.layer.size(); l++) {
    s.layer[l].kv_used_bytes = cache_.used_bytes(int64_t(l));
    s.layer[l].kv_reserved_bytes = cache_.reserved_bytes(int64_t(l));
    s.layer[l].kv_dense_bytes = model_.config().section(int64_t(l)).attention() ? tokens * cache_.row_bytes() : 0;
  }
  return s;
}

}  // namespace isobath
