#include "generate/prefix_cache.h"

#include <algorithm>

namespace isobath {
namespace {

// Fewer tokens than a page holds are read faster than shared.
constexpr int64_t kLeast = kPageRows;

}  // namespace

int64_t common_beginning(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return end - a.begin();
}

int64_t PrefixCache::find(std::span<const int32_t> tokens, int64_t sequence_id) {
  int64_t longest = kLeast - 1;
  auto best = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t length = entry->sequence_id == sequence_id ? common_beginning(tokens, entry->tokens) : 0;
    if (length <= longest) continue;
    longest = length;
    best = entry;
  }
  if (best == entries_.end()) return 0;
  entries_.splice(entries_.begin(), entries_, best);
  return longest;
}

int64_t PrefixCache::adopt(int64_t sequence, std::span<const int32_t> tokens, int64_t sequence_id) {
  const int64_t found = find(tokens, sequence_id);
  if (found > 0) store_.adopt(sequence, entries_.front().share, found);
  return found;
}

void PrefixCache::remember(int64_t sequence, std::span<const int32_t> tokens, int64_t sequence_id) {
  if (most_ == 0 || int64_t(tokens.size()) < kLeast) return;
  if (find(tokens, sequence_id) == int64_t(tokens.size())) return;  // a longer one is there
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    const bool covered =
        entry->sequence_id == sequence_id && common_beginning(entry->tokens, tokens) == int64_t(entry->tokens.size());
    if (covered) drop(entry);
    entry = next;
  }
  if (int64_t(entries_.size()) == most_) drop_oldest();
  entries_.push_front({{tokens.begin(), tokens.end()}, sequence_id, store_.share(sequence)});
}

void PrefixCache::drop(std::list<Entry>::iterator entry) {
  store_.release(entry->share);
  entries_.erase(entry);
}

bool PrefixCache::drop_oldest() {
  if (entries_.empty()) return false;
  drop(std::prev(entries_.end()));
  return true;
}

}  // namespace isobath
