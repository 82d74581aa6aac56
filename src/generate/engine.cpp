// What an engine does with requests. engine_step.cpp has the scheduling, engine_pass.cpp the passes.
#include "generate/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"

namespace isobath {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void check_speculation(const EngineOptions& o, const ModelConfig& config) {
  require(o.speculate >= 0 && o.speculate <= kMostDrafts, "engine: speculate is {}, expected 0 (no drafts) to {}",
          o.speculate, kMostDrafts);
  if (o.speculate == 0) return;
  require(config.routers() > 0,
          "speculation drafts tokens without the routed blocks, and this model has none to skip ({}); leave speculate "
          "out",
          config.has_experts() ? "its experts are run by every token" : "it is dense");
  require(o.draft_depth < o.depth,
          "engine: draft_depth is {}, expected less than depth, {}: a draft must run fewer blocks", o.draft_depth,
          o.depth);
  require(o.max_rows > o.speculate,
          "engine: a pass of {} rows cannot verify {} drafted tokens and the one before; "
          "expected max_rows of {} or more",
          o.max_rows, o.speculate, o.speculate + 1);
}

EngineOptions resolved(EngineOptions o, const ModelConfig& config) {
  require(o.sequences >= 1, "engine: room for {} sequences, expected 1 or more", o.sequences);
  require(o.max_rows >= 1, "engine: max_rows is {}, expected 1 or more", o.max_rows);
  require(o.queue >= 1, "engine: a queue of {} requests, expected 1 or more", o.queue);
  require(o.kv_bytes >= 0, "engine: {} bytes of caches, expected 0 (as many as needed) or more", o.kv_bytes);
  require(o.prefixes >= 0, "engine: {} prefixes are to be kept, expected 0 or more", o.prefixes);
  require(!std::isnan(o.depth), "engine: depth is not a number; 0 runs the model as trained");
  require(config.has_causal_rule(), "this model has no causal rule to generate with: {}", config.why_no_causal_rule());
  check_speculation(o, config);
  if (!o.weights) o.weights = config.quantized.value_or(WeightFormat::kF32);
  require(
      !config.quantized || o.weights == config.quantized,
      "this model is stored in {} and cannot be run in {}; leave the format out, or take the model that it was made "
      "from",
      name_of(config.quantized.value_or(WeightFormat::kF32)), name_of(*o.weights));
  o.max_rows = std::min(o.max_rows, o.sequences * config.max_position_embeddings);  // all contexts together
  if (!o.clock) o.clock = steady_seconds;
  return o;
}

}  // namespace

Engine::Engine(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      options_(resolved(options, model.config())),
      acts_(model.config(), {.sequences = 1, .T = options_.max_rows, .max_documents = options_.sequences},
            Purpose::kForward),
      products_(model.config(), {.max_rows = options_.max_rows,
                                 .exact = {},
                                 .head_rows = head_chunk(model.config(), options_.max_rows),
                                 .backward = false,
                                 .frozen = options_.weights}),
      sampler_(model.config().vocab_size),
      cache_(model.config(), options_.sequences, options_.kv_bytes, options_.kv),
      prefixes_(cache_, options_.prefixes),
      place_(size_t(options_.sequences)),
      logits_(size_t(std::min(options_.sequences * (1 + options_.speculate), options_.max_rows) *
                     model.config().vocab_size)),
      draft_logits_(size_t(options_.speculate * options_.sequences * model.config().vocab_size)) {
  model.pack(products_);
  for (std::vector<int32_t>* rows : {&rows_.token, &rows_.position, &rows_.sequence})
    rows->reserve(size_t(options_.max_rows));
  rows_.begin.reserve(size_t(options_.sequences + 1));
  rows_.last.reserve(size_t(options_.max_rows));
  rows_.sequence_id.resize(size_t(options_.sequences));
  running_.reserve(size_t(options_.sequences));
  restart_statistics();
}

void Engine::restart_statistics() {
  done_ = {};
  done_.layer.resize(size_t(model_.config().sections()));
}

namespace {

// That a request may come to read. The last one that is drawn is not read.
int64_t most_tokens(const Request& r, int64_t context) {
  return std::min(context, int64_t(r.prompt.size()) + std::min(r.max_tokens, context) - 1);
}

}  // namespace

void Engine::fits(const Request& request) const {
  check(request, model_.config());
  require(request.speculate.value_or(0) <= options_.speculate,
          "a request wants {} tokens drafted ahead, the engine was made for {}", request.speculate.value_or(0),
          options_.speculate);
  const int64_t most = most_tokens(request, model_.config().max_position_embeddings);
  require(cache_.pages_of(most) <= pool().pages(),
          "a request of {} tokens may need {} pages of keys and values, and the whole cache has {} (of {} bytes); ask "
          "for fewer tokens or give the engine more memory",
          most, cache_.pages_of(most), pool().pages(), pool().memory().page_bytes());
}

std::optional<int64_t> Engine::submit(Request request, Listener listener) {
  fits(request);
  if (waiting() >= options_.queue) return std::nullopt;
  const int64_t most = most_tokens(request, model_.config().max_position_embeddings);
  const int64_t prompt = int64_t(request.prompt.size());
  if (!request.speculate) request.speculate = options_.speculate;
  TextStream stream(tokenizer_, request.prompt, request.stop);
  Owned s(new Sequence{next_id_++, std::move(request), std::move(listener), std::move(stream), options_.clock()});
  s->result.prompt_tokens = prompt;
  s->result.tokens.reserve(size_t(most + 1));
  s->result.tokens = s->request.prompt;
  s->draft.reserve(size_t(*s->request.speculate));
  s->result.text.reserve(size_t(4 * (most - prompt)));
  waiting_.push_back(std::move(s));
  return waiting_.back()->id;
}

Engine::Sequence* Engine::at(int64_t id) const {
  for (const auto& s : running_)
    if (s->id == id) return s.get();
  for (const auto& s : waiting_)
    if (s->id == id) return s.get();
  return nullptr;
}

const Result* Engine::find(int64_t id) const {
  const Sequence* s = at(id);
  return s == nullptr ? nullptr : &s->result;
}

std::vector<int32_t> Engine::cached_positions(int64_t id, int64_t layer) const {
  const Sequence* s = at(id);
  require(s != nullptr && s->place >= 0, "request {} has no caches: it waits or is finished", id);
  return cache_.positions(layer, s->place);
}

bool Engine::cancel(int64_t id) {
  Sequence* s = at(id);
  if (s == nullptr) return false;
  if (s->cut == Finish::kNotYet) s->cut = Finish::kCancelled;
  if (!busy_) end_what_is_due();
  return true;
}

void Engine::rollback(int64_t id, int64_t n) {
  Sequence* s = at(id);
  require(s != nullptr && !busy_, "rollback: request {} is finished, or the engine is in a step", id);
  Result& r = s->result;
  require(n >= 0 && n <= r.drawn(), "rollback: {} tokens of request {}, which drew {}", n, id, r.drawn());
  if (n == 0) return;
  r.tokens.resize(r.tokens.size() - size_t(n));
  s->read = std::min(s->read, int64_t(r.tokens.size()) - 1);  // the last token is read again: its logits are gone
  if (s->place >= 0) cache_.rollback(s->place, s->read);
  s->stream = TextStream(tokenizer_, s->request.prompt, s->request.stop);
  r.text.clear();
  for (int64_t i = r.prompt_tokens; i < int64_t(r.tokens.size()); i++) r.text += s->stream.push(r.tokens[size_t(i)]);
}

bool Engine::is_eos(int32_t token) const {
  const std::vector<int64_t>& ids = model_.config().eos_token_id;
  return token == tokenizer_.eos() || std::find(ids.begin(), ids.end(), token) != ids.end();
}

void Engine::show(Sequence& s, std::string_view piece) {
  if (piece.empty()) return;
  s.result.text += piece;
  if (s.listener.on_text) s.listener.on_text(piece);
}

// The token that was drawn becomes part of the sequence. What ends it is noted in `cut`.
void Engine::accept(Sequence& s, int32_t token, CF32 logits) {
  Result& r = s.result;
  if (r.drawn() == 0) r.first_token_s = options_.clock() - s.submitted_s;
  r.tokens.push_back(token);
  done_.drawn_tokens++;
  if (s.listener.on_token) s.listener.on_token(r, logits);
  const std::vector<int32_t>& stop = s.request.stop_tokens;
  Finish how = Finish::kNotYet;
  if (s.request.stop_at_eos && is_eos(token))
    how = Finish::kEos;
  else if (std::find(stop.begin(), stop.end(), token) != stop.end())
    how = Finish::kStop;
  else
    show(s, s.stream.push(token));
  if (how != Finish::kNotYet)
    s.cut = how;
  else if (s.stream.stopped())
    s.cut = Finish::kStop;
  else if (s.cut != Finish::kNotYet)
    return;
  else if (r.drawn() == s.request.max_tokens)
    s.cut = Finish::kMaxTokens;
  else if (int64_t(r.tokens.size()) > model_.config().max_position_embeddings)
    s.cut = Finish::kContext;
}

void Engine::finish(Sequence& s, Finish how) {
  show(s, s.stream.finish());
  s.result.finish = how;
  s.result.seconds = options_.clock() - s.submitted_s;
  done_.finished++;
  if (s.place >= 0) remember(s);
  if (s.listener.on_finish) s.listener.on_finish(s.result);
  if (s.place >= 0) leave_place(s);
  const auto is_this = [&](const Owned& other) { return other.get() == &s; };
  if (const auto found = std::find_if(running_.begin(), running_.end(), is_this); found != running_.end())
    running_.erase(found);
  else
    waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(), is_this));
}

int64_t Engine::shared_id(const Sequence& s) const {
  return model_.config().routing.router == Router::kRandom ? s.request.sequence_id : 0;
}

void Engine::remember(Sequence& s) {
  prefixes_.remember(s.place, {s.result.tokens.data(), size_t(s.read)}, shared_id(s));
}

void Engine::leave_place(Sequence& s) {
  cache_.release(s.place);
  place_[size_t(s.place)] = nullptr;
  s.place = -1;
  s.read = 0;
}

std::vector<Result> run_all(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Result> results(requests.size());
  for (size_t i = 0; i < requests.size(); i++) {
    const Listener keep{.on_finish = [&results, i](const Result& r) { results[i] = r; }};
    while (!engine.submit(requests[i], keep)) engine.step();
  }
  engine.run();
  return results;
}

}  // namespace isobath
