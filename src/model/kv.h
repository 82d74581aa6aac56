// Where a layer's keys and values stand when text is generated. Pages (ops/kv_pages.h) come from one pool for all
// layers and sequences; a slot of a layer and sequence takes one only when a row that was routed there needs it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/kv_pages.h"
#include "tensor/arena.h"

namespace isobath {

// One layer's cache of one sequence. Only rows that were routed to the layer are in it, ascending by position.
struct KvSlot {
  int32_t* page = nullptr;  // numbers of its pages, room for as many as a whole context needs
  int64_t length = 0;       // rows
  int64_t pages() const { return pages_for(length); }
};

// Pages of one size, counted by reference: equal beginnings of sequences share them. All memory is reserved at the
// start, and touched when a page is first used.
class KvPool {
 public:
  KvPool(int64_t pages, int64_t layers, int64_t G, int64_t K, Storage storage);

  const KvPages& memory() const { return memory_; }
  int64_t pages() const { return int64_t(references_.size()); }
  int64_t free_pages() const { return int64_t(free_.size()); }
  int64_t held_pages(int64_t layer) const { return held_[size_t(layer)]; }

  // A page for a layer. Who starts a pass has seen to it that there are enough; Error{kWork} if not. Allocates nothing.
  int32_t take(int64_t layer);
  void share(int32_t page) { references_[size_t(page)]++; }
  void release(int32_t page);
  bool shared(int32_t page) const { return references_[size_t(page)] > 1; }

 private:
  KvPages memory_;
  Arena arena_;
  View<std::byte> bytes_;
  std::vector<int32_t> free_, references_, layer_;  // layer_: that a page was taken for
  std::vector<int64_t> held_;
};

// The slots of one layer, one per sequence of the batch.
struct KvLayer {
  std::span<KvSlot> slots;
  KvPool* pool = nullptr;
  int64_t layer = 0;
  bool empty() const { return slots.empty(); }

  // Appends a row's key and value (G*K). A last page that others read too is copied first.
  void append(KvSlot& slot, int32_t position, const float* key, const float* value) const;
};

// All layers' slots of the batch's sequences: slot(l, b).
struct KvCache {
  KvSlot* slots = nullptr;
  int64_t sequences = 0;
  KvPool* pool = nullptr;
  KvLayer layer(int64_t l) const {
    return empty() ? KvLayer{} : KvLayer{{slots + l * sequences, size_t(sequences)}, pool, l};
  }
  bool empty() const { return slots == nullptr; }
};

}  // namespace isobath
