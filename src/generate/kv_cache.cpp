#include "generate/kv_cache.h"

#include <algorithm>

namespace isobath {
namespace {

constexpr int64_t kFewRows = 16;

// Half as much again, in whole groups.
int64_t roomy(int64_t rows) { return (std::max(kFewRows, rows + rows / 2) + kFewRows - 1) / kFewRows * kFewRows; }

template <class T>
void move_rows(std::unique_ptr<T[]>& memory, int64_t used, int64_t capacity) {
  std::unique_ptr<T[]> larger(new T[size_t(capacity)]);
  std::copy_n(memory.get(), used, larger.get());
  memory = std::move(larger);
}

}  // namespace

KvStore::KvStore(const ModelConfig& config, int64_t sequences)
    : layers_(config.sections()),
      sequences_(sequences),
      cols_(config.heads().kv_cols()),
      slots_(size_t(layers_ * sequences)),
      memory_(size_t(layers_ * sequences)) {
  for (int64_t l = 0; l < layers_; l++) attends_.push_back(config.section(l).attention());
}

void KvStore::resize(size_t index, int64_t capacity) {
  KvSlot& slot = slots_[index];
  Memory& memory = memory_[index];
  move_rows(memory.key, slot.length * cols_, capacity * cols_);
  move_rows(memory.value, slot.length * cols_, capacity * cols_);
  move_rows(memory.position, slot.length, capacity);
  slot = {memory.key.get(), memory.value.get(), memory.position.get(), slot.length, capacity};
}

void KvStore::reserve(int64_t sequence, int64_t rows) {
  for (int64_t l = 0; l < layers_; l++) {
    if (!attends_[size_t(l)]) continue;
    const size_t index = size_t(l * sequences_ + sequence);
    const int64_t needed = slots_[index].length + rows;
    if (needed > slots_[index].capacity) resize(index, std::max(needed, roomy(slots_[index].length)));
  }
}

void KvStore::fit() {
  for (size_t index = 0; index < slots_.size(); index++) {
    const int64_t wanted = roomy(slots_[index].length);
    if (slots_[index].capacity > 2 * wanted) resize(index, wanted);
  }
}

void KvStore::rollback(int64_t sequence, int64_t tokens) {
  for (int64_t l = 0; l < layers_; l++) {
    KvSlot& slot = slots_[size_t(l * sequences_ + sequence)];
    while (slot.length > 0 && slot.position[slot.length - 1] >= tokens) slot.length--;
  }
}

void KvStore::clear() {
  std::fill(slots_.begin(), slots_.end(), KvSlot{});
  for (Memory& memory : memory_) memory = {};
}

int64_t KvStore::used_bytes(int64_t layer) const {
  int64_t rows = 0;
  for (int64_t b = 0; b < sequences_; b++) rows += slot(layer, b).length;
  return rows * row_bytes();
}

int64_t KvStore::reserved_bytes(int64_t layer) const {
  int64_t rows = 0;
  for (int64_t b = 0; b < sequences_; b++) rows += slot(layer, b).capacity;
  return rows * row_bytes();
}

}  // namespace isobath
