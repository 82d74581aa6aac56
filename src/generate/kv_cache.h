// Keys and values of past tokens. A slot per section and sequence holds the rows that went through that layer, and no
// others: the memory of a routed layer grows with the tokens routed there.
//
//   store.reserve(b, n);                    // before a pass: room for n more rows of sequence b in every layer
//   forward_blocks(..., store.view());      // appends
//   store.rollback(b, tokens);              // drops what stands at positions `tokens` and later, in every layer
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "model/config.h"
#include "model/kv.h"

namespace isobath {

class KvStore {
 public:
  KvStore(const ModelConfig& config, int64_t sequences);  // empty, no memory taken

  // Room for `rows` more rows in every layer. Grows by half at least, so that n single steps copy O(n) rows.
  void reserve(int64_t sequence, int64_t rows);
  // Gives back what slots hold far beyond their need: after a prompt, whose rows might all have been routed but were
  // not.
  void fit();
  void rollback(int64_t sequence, int64_t tokens);
  void clear();  // all sequences; frees the memory

  KvCache view() { return {slots_.data(), sequences_}; }
  const KvSlot& slot(int64_t layer, int64_t sequence) const { return slots_[size_t(layer * sequences_ + sequence)]; }

  // Bytes of keys and values over all sequences (the positions add 4 bytes a row).
  int64_t used_bytes(int64_t layer) const;
  int64_t reserved_bytes(int64_t layer) const;
  int64_t row_bytes() const { return 2 * cols_ * int64_t(sizeof(float)); }  // a dense model's, per token and layer

 private:
  struct Memory {
    std::unique_ptr<float[]> key, value;
    std::unique_ptr<int32_t[]> position;
  };
  void resize(size_t index, int64_t capacity);
  int64_t layers_, sequences_, cols_;  // cols: G*K
  std::vector<bool> attends_;          // (layers): one without attention has no keys
  std::vector<KvSlot> slots_;          // (layers, sequences)
  std::vector<Memory> memory_;         // what the slots point to
};

}  // namespace isobath
