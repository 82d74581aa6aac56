// The passes of a step: drafts, then the rows that were planned, and what is drawn from them.
#include <chrono>

#include "generate/engine.h"
#include "model/network.h"

namespace isobath {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Batch Engine::Rows::batch() const {
  return {.token = view_of(token),
          .target = {},
          .position = view_of(position),
          .capacity_begin = view_of(begin),
          .segment_begin = view_of(begin),
          .sequence = view_of(sequence),
          .sequence_id = view_of(sequence_id)};
}

void Engine::clear_rows() {
  for (std::vector<int32_t>* rows : {&rows_.token, &rows_.position, &rows_.sequence, &rows_.begin, &rows_.last})
    rows->clear();
  rows_.begin.push_back(0);
}

// Tokens [begin, begin + count) of a place, behind those of the places before it. Logits are wanted of the last token
// and of drafts.
void Engine::add_rows(size_t place, int64_t begin, int64_t count) {
  for (int64_t i = begin; i < begin + count; i++) {
    const Sequence& s = *place_[place];
    if (i >= s.end() - 1) rows_.last.push_back(int32_t(rows_.token.size()));
    rows_.token.push_back(s.token(i));
    rows_.position.push_back(int32_t(i));
    rows_.sequence.push_back(int32_t(place));
  }
  rows_.begin.push_back(int32_t(rows_.token.size()));
}

// The logits that are wanted, in the memory given.
F32 Engine::run_rows(float depth, float* logits) {
  const ModelConfig& config = model_.config();
  const Weights& weights = model_.weights.weights();
  forward_blocks(weights, products_, acts_, config, rows_.batch(), {.by = SelectBy::kCausal, .depth = depth},
                 cache_.view());
  const F32 wanted{logits, {int64_t(rows_.last.size()), config.vocab_size}};
  forward_logits(wanted, weights, products_, acts_, config, view_of(rows_.last));
  return wanted;
}

// A pass for the first draft of all that speculate, one for the second, and so on. Their keys and values are those of
// another model: nothing of them stays.
void Engine::draft() {
  int64_t rounds = 0;
  for (const Owned& s : running_) {
    s->draft.clear();
    rounds = std::max(rounds, s->drafts());
  }
  if (rounds == 0) return;
  const Clock::time_point start = Clock::now();
  const int64_t V = model_.config().vocab_size;
  for (int64_t round = 0; round < rounds; round++) {
    clear_rows();
    for (size_t place = 0; place < place_.size(); place++) {
      const Sequence* s = place_[place];
      add_rows(place, s == nullptr ? 0 : s->read + round, s != nullptr && round < s->drafts() ? 1 : 0);
    }
    const F32 logits = run_rows(options_.draft_depth, draft_logits_.data() + round * options_.sequences * V);
    for (size_t i = 0; i < rows_.last.size(); i++) {
      Sequence& s = owner(i);
      const CF32 row = logits.slice(int64_t(i), 1).reshaped({V});
      s.draft.push_back({sampler_.draft(row, s.request.sampling, s.end() + round), row});
    }
  }
  for (const Owned& s : running_)
    if (!s->draft.empty()) cache_.rollback(s->place, s->read);
  done_.draft_passes += rounds;
  done_.draft_seconds += seconds_since(start);
}

void Engine::run_pass() {
  const Clock::time_point start = Clock::now();
  clear_rows();
  for (size_t place = 0; place < place_.size(); place++)
    add_rows(place, place_[place] == nullptr ? 0 : place_[place]->read,
             place_[place] == nullptr ? 0 : place_[place]->rows);
  const F32 logits = run_rows(options_.depth, logits_.data());
  note(seconds_since(start));
  for (Sequence* s : place_) {
    if (s == nullptr || s->rows == 0) continue;
    const bool was_prompt = s->catches_up();
    s->read += std::min(s->rows, s->unread());
    if (was_prompt && !s->catches_up()) remember(*s);
  }
  for (size_t i = 0; i < rows_.last.size();) {
    Sequence& s = owner(i);
    const int64_t count = 1 + int64_t(s.draft.size());
    draw(s, logits.slice(int64_t(i), count));
    i += size_t(count);
  }
}

// logits (1 + drafts, V) of the last token and of the drafts behind it: a token from the first, and while drafts stand
// one from the next. What was read of the others is dropped, so that the caches hold what they would without drafts.
void Engine::draw(Sequence& s, CF32 logits) {
  const int64_t drafts = int64_t(s.draft.size()), before = s.end();
  int64_t accepted = 0;
  for (bool stands = true; stands;) {
    const CF32 row = logits.slice(accepted, 1).reshaped({logits.cols()});
    const Drafted* draft = accepted < drafts ? &s.draft[size_t(accepted)] : nullptr;
    const int32_t token = draft == nullptr
                              ? sampler_.sample(row, s.request.sampling, s.end())
                              : sampler_.verify(row, draft->logits, draft->token, s.request.sampling, s.end());
    const bool same = draft != nullptr && token == draft->token;
    accepted += same ? 1 : 0;
    accept(s, token, row);
    stands = same && s.cut == Finish::kNotYet;
  }
  if (drafts == 0) return;
  s.read = s.end() - 1;
  cache_.rollback(s.place, s.read);
  const int64_t rejected = drafts + 1 - (s.end() - before);
  (reads_prompt_ ? done_.prefill_tokens : done_.decode_tokens) -= rejected;
  done_.rejected_tokens += rejected;
  for (Speculation* all : {&s.result.speculation, &done_.speculation}) {
    all->rounds++;
    all->drafted += drafts;
    all->accepted += accepted;
  }
}

// Of the pass that was run.
void Engine::note(double seconds) {
  const int64_t rows = int64_t(rows_.token.size());
  int64_t tokens = 0, held = 0, most = 0;
  for (const Owned& s : running_) tokens += s->read + s->rows;
  done_.passes++;
  (reads_prompt_ ? done_.prefill_tokens : done_.decode_tokens) += rows;
  (reads_prompt_ ? done_.prefill_seconds : done_.decode_seconds) += seconds;
  for (size_t l = 0; l < done_.layer.size(); l++) {
    const bool routed = model_.config().section(int64_t(l)).routed;
    done_.layer[l].rows += routed ? acts_.section[l].router.list.rows : rows;
    done_.layer[l].no_ops += acts_.section[l].experts.tally.no_ops;
    held += cache_.held_bytes(int64_t(l));
    most += done_.layer[l].kv_held_bytes;
  }
  if (held < most) return;
  for (size_t l = 0; l < done_.layer.size(); l++) {
    LayerStatistics& layer = done_.layer[l];
    layer.kv_used_bytes = cache_.used_bytes(int64_t(l));
    layer.kv_held_bytes = cache_.held_bytes(int64_t(l));
    layer.kv_dense_bytes = model_.config().section(int64_t(l)).attention() ? tokens * kv_row_bytes() : 0;
  }
}

}  // namespace isobath
