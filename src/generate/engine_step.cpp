// A step of an engine: who is in, who ends, who gets rows. engine_pass.cpp runs them.
#include <algorithm>
#include <cmath>

#include "generate/engine.h"

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
  if (planned_rows_ == 0) return;
  draft();
  run_pass();
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

// Somebody is reading a prompt that begins alike, by a page or more than what is kept: what is read once is shared.
bool Engine::waits_for_another(const Sequence& s) {
  if (options_.prefixes == 0) return false;
  const std::span<const int32_t> tokens(s.result.tokens.data(), size_t(s.end() - 1));
  int64_t most = 0;
  for (const Owned& other : running_)
    if (other->unread() > 1 && shared_id(*other) == shared_id(s))
      most = std::max(most, common_beginning(tokens, other->result.tokens));
  return most >= kPageRows && most >= prefixes_.find(tokens, shared_id(s)) + kPageRows;
}

void Engine::admit() {
  auto next = waiting_.begin();
  while (next != waiting_.end() && running() < options_.sequences) {
    if (waits_for_another(**next)) {
      ++next;
      continue;
    }
    if (!has_room_for(**next)) return;
    Sequence& s = **next;
    s.place = std::find(place_.begin(), place_.end(), nullptr) - place_.begin();
    place_[size_t(s.place)] = &s;
    rows_.sequence_id[size_t(s.place)] = s.request.sequence_id;
    // The last token is read in any case: what follows is drawn from it.
    s.read = prefixes_.adopt(s.place, {s.result.tokens.data(), s.result.tokens.size() - 1}, shared_id(s));
    done_.shared_tokens += s.read;
    const auto by_id = [](const Owned& a, const Owned& b) { return a->id < b->id; };
    running_.insert(std::upper_bound(running_.begin(), running_.end(), *next, by_id), std::move(*next));
    next = waiting_.erase(next);
  }
}

// The next token of what is being written goes first, then prompts; the older request before the younger.
void Engine::plan_rows() {
  planned_rows_ = planned_pages_ = 0;
  for (const Owned& s : running_) s->rows = s->pages = 0;
  for (const bool prompts : {false, true})
    for (size_t i = 0; i < running_.size(); i++)  // who gives way is last
      if (running_[i]->catches_up() == prompts) plan_rows_of(*running_[i]);
  reads_prompt_ =
      std::any_of(running_.begin(), running_.end(), [](const Owned& s) { return s->rows > 0 && s->catches_up(); });
}

// What is left of the prompt; after giving way all that was read, but with drafts to come not the last token, since
// drafts go on from its pass as they did before; else that token, and drafts that a verification could all use.
int64_t Engine::rows_wanted(const Sequence& s) const {
  const int64_t most = *s.request.speculate, drawn = s.result.drawn();
  if (s.catches_up()) return s.unread() - (most > 0 && drawn > 0 ? 1 : 0);
  return 1 + std::min({most, s.request.max_tokens - drawn - 1, model_.config().max_position_embeddings - s.end()});
}

// Pages are promised as if every row were routed everywhere, so that a pass cannot run out. If there are not enough,
// kept beginnings go, then a prompt's piece becomes shorter, then the youngest request gives way; the youngest itself
// waits. The oldest always gets its rows: alone they would fit. Drafts come all together or not at all, so that what is
// drawn does not depend on who else is there; they take their pages before the pass and give them back in time for it.
void Engine::plan_rows_of(Sequence& s) {
  const int64_t wanted = rows_wanted(s), left = options_.max_rows - planned_rows_;
  int64_t rows = wanted <= left ? wanted : s.catches_up() ? left : 0;
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
    if (rows > 1 && s.catches_up())
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

}  // namespace isobath
