// Requests in, tokens out: continuous batching over paged caches.
//
//   Engine engine(*loaded.model, loaded.tokenizer, {.sequences = 8});
//   engine.submit({.prompt = prompt_tokens(loaded.tokenizer, "Once upon a time")},
//                 {.on_text = [](std::string_view piece) { std::cout << piece; }});
//   while (engine.step()) continue;
//
// A step is one forward pass over one list of rows: the next token of every sequence that is being written, then pieces
// of prompts, at most max_rows together. A block works on the rows that chose it, and does nothing if none did.
// Requests wait in a queue until a place and memory for their prompt are there; when the caches' memory runs out, the
// youngest request gives its pages back, waits, and later reads its tokens again.
//
// Bits: rows are chosen by the causal rule alone, in the prompt too. For a fixed number format and instruction set a
// sequence's tokens and logits have the same bits alone, in any batch, with its prompt read whole or in pieces, with or
// without shared beginnings, before and after it gave way. In fp32 they are those of evaluation under the causal rule
// where FrozenLinear::matches_linear().
//
// Speculation (speculate = K above 0): while a sequence is written, K more tokens are drafted in passes of their own,
// one after the other, with the causal rule's logit lowered by so much that routed blocks are skipped; their keys and
// values are dropped, and the step's pass reads all of them under the normal rule, with one row each. Those that stand,
// and one token more, are drawn in that step; the others leave every cache again. Greedy answers are those without
// speculation, to the bit; drawn ones have the same distribution (sampler.h), and are others for the same seed, a
// function of the request and of K and draft_depth alone unless the caller rolls back. Each of a step's drafts is a
// pass over all that is never routed, so this pays only if routed blocks are most of the work and drafts mostly stand
// (docs/performance.md).
//
// One thread at a time (engine_thread.h is for more). In a step nothing is allocated but what a request brings or
// leaves: its first and last one, and the one that ends its prompt.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "generate/kv_store.h"
#include "generate/prefix_cache.h"
#include "generate/request.h"
#include "generate/statistics.h"
#include "generate/text_stream.h"
#include "model/activations.h"
#include "model/model.h"

namespace isobath {

inline constexpr int64_t kMostDrafts = 64;  // of a pass: far beyond what can pay

struct EngineOptions {
  int64_t sequences = 1;                     // written at once, at most
  int64_t max_rows = 512;                    // of one pass: longer prompts are read in pieces
  int64_t queue = 1024;                      // requests that wait, at most
  std::optional<WeightFormat> weights = {};  // left out: as the model is stored if it is quantized, else fp32
  Storage kv = Storage::kF32;
  int64_t kv_bytes = 0;   // of all caches together, never exceeded; 0: room for every sequence's whole context
  int64_t prefixes = 64;  // beginnings of finished and running requests that are kept while memory allows; 0: none
  float depth = 0;        // added to the causal rule's logit: above 0 more blocks run, below 0 fewer
  int64_t speculate = 0;  // tokens that are drafted ahead of a pass for each sequence, up to kMostDrafts; 0: none
  float draft_depth = -std::numeric_limits<float>::infinity();  // depth of drafts; -infinity: no routed block runs
  std::function<double()> clock = {};                           // seconds; left out: the steady clock
};

class Engine {
 public:
  // Packs the model's weights, which must stay as they are while the engine lives.
  // Throws Error if the model has no causal rule, is quantized and another format is asked for, or is to speculate and
  // has no routed block to skip.
  Engine(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The request's number, counted from 0; none if the queue is full: step, then try again.
  // Throws Error naming what is wrong with it; so does a request that the whole memory could not hold.
  std::optional<int64_t> submit(Request request, Listener listener = {});
  void fits(const Request& request) const;  // throws as submit() does; from any thread

  bool step();  // one pass; returns whether there is more to do
  void run() {
    while (step()) continue;
  }

  // Ends a request with what it has; from a listener, as soon as the step is over. Returns whether it was there.
  bool cancel(int64_t id);
  // Drops the last n drawn tokens of a request that is not finished, which goes on from there with the bits of one that
  // never had them. Text that was shown is not taken back; result().text is.
  void rollback(int64_t id, int64_t n);

  const Result* find(int64_t id) const;  // of a request that is not finished; else null
  // What stands in a layer's cache of a request that is being written or about to finish (on_finish).
  std::vector<int32_t> cached_positions(int64_t id, int64_t layer) const;

  int64_t waiting() const { return int64_t(waiting_.size()); }
  int64_t running() const { return int64_t(running_.size()); }
  bool idle() const { return waiting_.empty() && running_.empty(); }
  const EngineOptions& options() const { return options_; }
  const KvPool& pool() const { return cache_.pool(); }
  int64_t kv_row_bytes() const { return pool().memory().row_bytes(); }
  int64_t weight_bytes() const { return products_.bytes(); }
  void forget_prefixes() { prefixes_.clear(); }  // their pages are free again
  const Statistics& statistics() const { return done_; }
  void restart_statistics();

 private:
  struct Drafted {
    int32_t token;
    CF32 logits;  // (V) that it was drawn from
  };
  struct Sequence {
    int64_t id;
    Request request;
    Listener listener;
    TextStream stream;
    double submitted_s;
    Result result = {};
    int64_t place = -1;               // in the caches; -1: it waits
    int64_t read = 0;                 // tokens whose keys and values are there
    int64_t rows = 0, pages = 0;      // of the pass that is planned
    std::vector<Drafted> draft = {};  // what stands behind the tokens in it
    Finish cut = Finish::kNotYet;     // asked for from outside
    int64_t end() const { return int64_t(result.tokens.size()); }
    int64_t unread() const { return end() - read; }
    int64_t drafts() const { return std::max<int64_t>(0, rows - unread()); }
    int32_t token(int64_t i) const { return i < end() ? result.tokens[size_t(i)] : draft[size_t(i - end())].token; }
    // Reads a prompt, or after giving way everything again; else the token that was drawn last.
    bool catches_up() const { return unread() > 1 || read < result.prompt_tokens; }
  };
  using Owned = std::unique_ptr<Sequence>;
  // The rows of one pass; every place has a run among them, which may be empty.
  struct Rows {
    std::vector<int32_t> token, position, sequence;  // (rows) of at most max_rows
    std::vector<int32_t> begin;                      // (places+1)
    std::vector<int32_t> last;                       // rows whose logits are wanted
    std::vector<int64_t> sequence_id;                // (places)
    Batch batch() const;
  };

  Sequence* at(int64_t id) const;
  void end_what_is_due();
  void pass();
  void admit();
  bool waits_for_another(const Sequence& s);
  bool has_room_for(const Sequence& s);
  int64_t expected_pages(int64_t tokens) const;
  void plan_rows();
  void plan_rows_of(Sequence& s);
  int64_t rows_wanted(const Sequence& s) const;
  void give_way(Sequence& s);
  void clear_rows();
  void add_rows(size_t place, int64_t begin, int64_t count);
  Sequence& owner(size_t last) { return *place_[size_t(rows_.sequence[size_t(rows_.last[last])])]; }
  F32 run_rows(float depth, float* logits);
  void draft();
  void run_pass();
  void note(double seconds);
  void draw(Sequence& s, CF32 logits);
  void accept(Sequence& s, int32_t token, CF32 logits);
  void show(Sequence& s, std::string_view piece);
  void finish(Sequence& s, Finish how);
  void remember(Sequence& s);
  void leave_place(Sequence& s);
  bool is_eos(int32_t token) const;
  int64_t shared_id(const Sequence& s) const;

  const Model& model_;
  Tokenizer tokenizer_;
  EngineOptions options_;
  Activations acts_;
  Products products_;
  Sampler sampler_;
  KvStore cache_;
  PrefixCache prefixes_;
  std::deque<Owned> waiting_;     // by id
  std::vector<Owned> running_;    // by id: the last one is the youngest
  std::vector<Sequence*> place_;  // (sequences) who has it
  Rows rows_;
  std::vector<float> logits_;        // (rows whose logits a pass may want, V)
  std::vector<float> draft_logits_;  // (speculate, places, V)
  int64_t next_id_ = 0, planned_rows_ = 0, planned_pages_ = 0;
  bool reads_prompt_ = false;  // the pass that is planned
  bool busy_ = false;          // in a step, or ending requests: what is cancelled meanwhile ends soon after
  Statistics done_;
};

// Runs requests to their end, as many at once as the engine takes; results in the order of the requests.
std::vector<Result> run_all(Engine& engine, const std::vector<Request>& requests);

}  // namespace isobath
