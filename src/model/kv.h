// Where a layer's keys and values stand when text is generated: plain data, owned and grown by the room `generate`.
#pragma once

#include <cstdint>
#include <span>

namespace isobath {

// One layer's cache of one sequence. Only rows that were routed to the layer are in it.
struct KvSlot {
  float* key = nullptr;         // (length, G*K), room for `capacity` rows
  float* value = nullptr;       // (length, G*K)
  int32_t* position = nullptr;  // (length) of the tokens, ascending: a rollback drops the last ones
  int64_t length = 0, capacity = 0;
};

// All layers' slots of the batch's sequences: slot(l, b).
struct KvCache {
  KvSlot* slots = nullptr;
  int64_t sequences = 0;
  std::span<KvSlot> layer(int64_t l) const { return {slots + l * sequences, size_t(sequences)}; }
  bool empty() const { return slots == nullptr; }
};

}  // namespace isobath
