// Beginnings of sequences whose keys and values are still there, so that another request that begins alike need not
// read them again. Full pages are shared; the last one is copied by whoever goes on writing in it. The rows of a token
// depend on the tokens before it and on nothing else, so bits are those of reading.
//
// An entry is a whole sequence as it was; any beginning of it can be used, since rows know their positions. Entries
// give their pages back when somebody needs them, least recently used first.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "generate/kv_store.h"

namespace isobath {

// How many tokens both begin with.
int64_t common_beginning(std::span<const int32_t> a, std::span<const int32_t> b);

class PrefixCache {
 public:
  // `most` entries; 0: none is kept, nothing is found.
  PrefixCache(KvStore& store, int64_t most) : store_(store), most_(most) {}
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // How many of the first `tokens` an entry has, 0 if not worth it. The entry counts as used. `sequence_id`: entries of
  // another one are passed over (its rows of router = random are others); the caller gives 0 where that has no meaning.
  int64_t find(std::span<const int32_t> tokens, int64_t sequence_id);
  // Gives the empty sequence of the store what find() found, and returns the same.
  int64_t adopt(int64_t sequence, std::span<const int32_t> tokens, int64_t sequence_id);

  // Notes a sequence of the store, whose caches hold exactly these tokens.
  void remember(int64_t sequence, std::span<const int32_t> tokens, int64_t sequence_id);

  bool drop_oldest();  // whether there was one
  void clear() {
    while (drop_oldest()) continue;
  }
  int64_t entries() const { return int64_t(entries_.size()); }

 private:
  struct Entry {
    std::vector<int32_t> tokens;
    int64_t sequence_id;
    KvShare share;
  };
  void drop(std::list<Entry>::iterator entry);
  KvStore& store_;
  int64_t most_;
  std::list<Entry> entries_;  // most recently used first
};

}  // namespace isobath
