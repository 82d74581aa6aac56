// A step of an engine: who gets rows, the pass over them, one token for each sequence that was read to its end.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "generate/engine.h"
#include "model/network.h"

namespace isobath {

namespace {

// Sets a flag while it lives, whatever is thrown.
class While {
 public:
  explicit While(bool& flag) : flag_(flag) { flag_ = true; }
  While(const While&) = delete;
  While& operator=(const While&) = delete;
  ~While() { flag_ = false; }

 private:
  bool& flag_;
};

}  // namespace

bool Engine::step() {
  end_what_is_due();
  pass();
  end_what_is_due();
  return !idle();
}

void Engine::pass() {
  const While busy(busy_);
  admit();
  plan_rows();
  if (gather_rows()) run_pass();
}

// What was cancelled, has ended or is past its deadline. Listeners may submit and cancel meanwhile, so the search
// begins anew after each.
void Engine::end_what_is_due() {
  const While busy(busy_);
  const double now = options_.clock();
  const auto due = [&](const Owned& s) {
    if (s->cut == Finish::kNotYet && s->request.seconds > 0 && now - s->submitted_s >= s->request.seconds)
      s->cut = Finish::kDeadline;
    return s->cut != Finish::kNotYet;
  };
  for (;;) {
    const auto runs = std::find_if(running_.begin(), running_.end(), due);
    const auto waits = runs != running_.end() ? waiting_.end() : std::find_if(waiting_.begin(), waiting_.end(), due);
    if (runs == running_.end() && waits == waiting_.end()) return;
    Sequence& s = runs != running_.end() ? **runs : **waits;
    finish(s, s.cut);
  }
}

// By what was routed so far. More is no fault: somebody gives way.
int64_t Engine::expected_pages(int64_t tokens) const {
  int64_t pages = 0;
  for (size_t l = 0; l < done_.layer.size(); l++) {
    const Section section = model_.config().section(int64_t(l));
    if (!section.attention()) continue;
    const double share = model_.config().keeps_all_keys(section) ? 1
                         : done_.rows() > 0                      ? done_.share_run(l)
                                                                 : model_.config().capacity(section);
    pages += pages_for(int64_t(std::ceil(share * double(tokens))));
  }
  return pages;
}

// For what it has to read, and a page for each layer of everybody to go on. Kept beginnings make room, oldest first.
bool Engine::has_room_for(const Sequence& s) {
  const int64_t tokens = int64_t(s.result.tokens.size());
  do {
    const int64_t shared = prefixes_.find({s.result.tokens.data(), size_t(tokens - 1)}, shared_id(s));
    const int64_t wanted = expected_pages(tokens - shared) + (running() + 1) * cache_.attending();
    if (wanted <= pool().free_pages()) return true;
  } while (prefixes_.drop_oldest());
  return running() == 0;  // alone it fits: submit() saw to that
}

void Engine::admit() {
  while (!waiting_.empty() && running() < options_.sequences && has_room_for(*waiting_.front())) {
    Sequence& s = *waiting_.front();
    s.place = std::find(place_.begin(), place_.end(), nullptr) - place_.begin();
    place_[size_t(s.place)] = &s;
    rows_.sequence_id[size_t(s.place)] = s.request.sequence_id;
    // The last token is read in any case: what follows is drawn from it.
    s.read = prefixes_.adopt(s.place, {s.result.tokens.data(), s.result.tokens.size() - 1}, shared_id(s));
    done_.shared_tokens += s.read;
    const auto by_id = [](const Owned& a, const Owned& b) { return a->id < b->id; };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), waiting_.front(), by_id),
                    std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

// The next token of what is being written goes first, then prompts; the older request before the younger.
void Engine::plan_rows() {
  planned_rows_ = planned_pages_ = 0;
  for (const Owned& s : running_) s->rows = s->pages = 0;
  for (const bool prompts : {false, true})
    for (size_t i = 0; i < running_.size(); i++)  // who gives way is last
      if (running_[i]->catches_up() == prompts) plan_rows_of(*running_[i]);
}

// Pages are promised as if every row were routed everywhere, so that a pass cannot run out. If there are not enough,
// kept beginnings go, then a prompt's piece becomes shorter, then the youngest request gives way; the youngest itself
// waits. The oldest always gets a row: alone it would fit.
void Engine::plan_rows_of(Sequence& s) {
  int64_t rows = std::min(s.unread(), options_.max_rows - planned_rows_);
  while (rows > 0) {
    const int64_t pages = cache_.pages_needed(s.place, rows);
    if (planned_pages_ + pages <= pool().free_pages()) {
      s.rows = rows;
      s.pages = pages;
      planned_rows_ += rows;
      planned_pages_ += pages;
      return;
    }
    if (prefixes_.drop_oldest()) continue;
    if (rows > 1)
      rows /= 2;
    else if (running_.back().get() == &s)
      return;
    else
      give_way(*running_.back());
  }
}

// The youngest request gives its pages back and waits, before those that never ran.
void Engine::give_way(Sequence& s) {
  planned_rows_ -= s.rows;
  planned_pages_ -= s.pages;
  s.rows = s.pages = 0;
  leave_place(s);
  done_.gave_way++;
  const auto by_id = [](const Owned& a, const Owned& b) { return a->id < b->id; };
  Owned owned = std::move(running_.back());
  running_.pop_back();
  waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), owned, by_id), std::move(owned));
}

Batch Engine::Rows::batch() const {
  return {.token = view_of(token),
          .target = {},
          .position = view_of(position),
          .capacity_begin = view_of(begin),
          .segment_begin = view_of(begin),
          .sequence = view_of(sequence),
          .sequence_id = view_of(sequence_id)};
}

bool Engine::gather_rows() {
  for (std::vector<int32_t>* rows : {&rows_.token, &rows_.position, &rows_.sequence, &rows_.begin, &rows_.last})
    rows->clear();
  rows_.begin.push_back(0);
  for (size_t place = 0; place < place_.size(); place++) {
    const Sequence* s = place_[place];
    for (int64_t i = 0; s != nullptr && i < s->rows; i++) {
      rows_.token.push_back(s->result.tokens[size_t(s->read + i)]);
      rows_.position.push_back(int32_t(s->read + i));
      rows_.sequence.push_back(int32_t(place));
    }
    rows_.begin.push_back(int32_t(rows_.token.size()));
    if (s != nullptr && s->rows > 0 && s->rows == s->unread()) rows_.last.push_back(rows_.begin.back() - 1);
  }
  return !rows_.token.empty();
}

void Engine::run_pass() {
  const auto start = std::chrono::steady_clock::now();
  const ModelConfig& config = model_.config();
  const Batch batch = rows_.batch();
  const Weights& weights = model_.weights.weights();
  forward_blocks(weights, products_, acts_, config, batch, {.by = SelectBy::kCausal, .depth = options_.depth},
                 cache_.view());
  const F32 logits{logits_.data(), {int64_t(rows_.last.size()), config.vocab_size}};
  forward_logits(logits, weights, products_, acts_, config, view_of(rows_.last));
  note(batch, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  for (Sequence* s : place_) {
    if (s == nullptr || s->rows == 0) continue;
    const bool was_prompt = s->catches_up();
    s->read += s->rows;
    if (s->unread() == 0 && was_prompt) remember(*s);
  }
  for (size_t i = 0; i < rows_.last.size(); i++) {
    Sequence& s = *place_[size_t(rows_.sequence[size_t(rows_.last[i])])];
    const CF32 row = logits.slice(int64_t(i), 1).reshaped({config.vocab_size});
    accept(s, sampler_.sample(row, s.request.sampling, int64_t(s.result.tokens.size())), row);
  }
}

void Engine::note(const Batch& batch, double seconds) {
  bool prompt = false;
  int64_t tokens = 0, held = 0, most = 0;
  for (const Owned& s : running_) {
    prompt |= s->rows > 0 && s->catches_up();
    tokens += s->read + s->rows;
  }
  done_.passes++;
  (prompt ? done_.prefill_tokens : done_.decode_tokens) += batch.rows();
  (prompt ? done_.prefill_seconds : done_.decode_seconds) += seconds;
  for (size_t l = 0; l < done_.layer.size(); l++) {
    const bool routed = model_.config().section(int64_t(l)).routed;
    done_.layer[l].rows += routed ? acts_.section[l].router.list.rows : batch.rows();
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
