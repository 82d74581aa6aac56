// The caches of several sequences: a page table per section of the model and sequence, over one pool with a budget.
// Sections are called layers here; one without attention has no rows.
//
//   store.pages_needed(b, n) <= store.pool().free_pages()    // before a pass with n more rows of sequence b
//   forward_blocks(..., store.view());                       // appends; takes pages for the rows that are routed
//   store.rollback(b, tokens);                               // drops what stands at positions `tokens` and later
//   store.adopt(c, share, tokens);                           // sequence c begins with another's first `tokens`
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/kv.h"

namespace isobath {

// What a sequence had in its caches at a moment, held by reference: nobody changes these rows while it lives.
struct KvShare {
  std::vector<int64_t> length;  // (layers)
  std::vector<int32_t> page;    // of all layers, one after the other
};

class KvStore {
 public:
  // `bytes` are cut into whole pages; all tables are allocated here. 0: room for every sequence at full context, with
  // every row routed to every layer.
  KvStore(const ModelConfig& config, int64_t sequences, int64_t bytes, Storage storage);

  KvCache view() { return {slots_.data(), sequences_, &pool_}; }
  const KvPool& pool() const { return pool_; }
  const KvSlot& slot(int64_t layer, int64_t sequence) const { return slots_[size_t(layer * sequences_ + sequence)]; }
  std::vector<int32_t> positions(int64_t layer, int64_t sequence) const;
  int64_t attending() const { return attending_; }  // layers with attention

  // The most pages that `rows` more rows can take: all of them routed to every layer.
  int64_t pages_needed(int64_t sequence, int64_t rows) const;
  // The same for a sequence of so many tokens from its start.
  int64_t pages_of(int64_t tokens) const { return attending_ * pages_for(tokens); }

  void rollback(int64_t sequence, int64_t tokens);
  void release(int64_t sequence) { rollback(sequence, 0); }

  KvShare share(int64_t sequence);
  // An empty sequence gets the rows of positions below `tokens`.
  void adopt(int64_t sequence, const KvShare& share, int64_t tokens);
  void release(KvShare& share);

  int64_t used_bytes(int64_t layer) const;  // rows of keys and values; a shared row counts for each that sees it
  int64_t held_bytes(int64_t layer) const { return pool_.held_pages(layer) * pool_.memory().page_bytes(); }

 private:
  KvSlot& at(int64_t layer, int64_t sequence) { return slots_[size_t(layer * sequences_ + sequence)]; }
  int64_t rows_below(const int32_t* page, int64_t length, int64_t tokens) const;
  int64_t layers_, sequences_, attending_ = 0;
  std::vector<bool> attends_;  // (layers)
  KvPool pool_;
  std::vector<int32_t> tables_;  // (layers, sequences, pages of a context)
  std::vector<KvSlot> slots_;    // (layers, sequences)
};

}  // namespace isobath
