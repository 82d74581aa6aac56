#include "generate/kv_cache.h"

#include <gtest/gtest.h>

namespace isobath {
namespace {

ModelConfig config() {
  ModelConfig c;
  c.num_hidden_layers = 3;
  c.num_key_value_heads = 1;
  c.num_attention_heads = 1;
  c.head_dim = 4;
  return c;
}

// What a layer does in a pass: appends rows whose numbers tell layer, sequence and position.
void append(KvStore& store, int64_t layer, int64_t sequence, int32_t position) {
  KvSlot& slot = store.view().layer(layer)[size_t(sequence)];
  ASSERT_LT(slot.length, slot.capacity);
  for (int64_t k = 0; k < 4; k++) {
    slot.key[slot.length * 4 + k] = float(1000 * layer + 100 * sequence + position);
    slot.value[slot.length * 4 + k] = -slot.key[slot.length * 4 + k];
  }
  slot.position[slot.length++] = position;
}

void expect_rows(const KvStore& store, int64_t layer, int64_t sequence, const std::vector<int32_t>& positions) {
  const KvSlot& slot = store.slot(layer, sequence);
  ASSERT_EQ(std::vector<int32_t>(slot.position, slot.position + slot.length), positions);
  for (int64_t i = 0; i < slot.length; i++)
    for (int64_t k = 0; k < 4; k++) {
      const float want = float(1000 * layer + 100 * sequence + slot.position[i]);
      ASSERT_EQ(slot.key[i * 4 + k], want);
      ASSERT_EQ(slot.value[i * 4 + k], -want);
    }
}

TEST(KvStore, StartsEmptyAndTakesNoMemory) {
  KvStore store(config(), 2);
  for (int64_t l = 0; l < 3; l++) EXPECT_EQ(store.used_bytes(l) + store.reserved_bytes(l), 0);
}

TEST(KvStore, GrowthKeepsRowsAndTouchesOneSequence) {
  KvStore store(config(), 2);
  std::vector<int32_t> positions;
  int64_t growths = 0;
  for (int32_t t = 0; t < 500; t++) {
    const int64_t before = store.slot(1, 1).capacity;
    store.reserve(1, 1);
    growths += store.slot(1, 1).capacity != before;
    append(store, 1, 1, t);
    positions.push_back(t);
  }
  expect_rows(store, 1, 1, positions);
  EXPECT_EQ(store.slot(1, 0).capacity, 0);
  EXPECT_LT(growths, 14) << "growth by single rows would copy all rows each time";
  EXPECT_EQ(store.used_bytes(1), 500 * 2 * 4 * 4);
  EXPECT_EQ(store.used_bytes(0), 0);
  EXPECT_LT(store.reserved_bytes(0), 20 * store.row_bytes()) << "a layer without rows keeps the first few only";
}

TEST(KvStore, RollbackDropsByPositionInEveryLayer) {
  KvStore store(config(), 2);
  store.reserve(0, 10);
  store.reserve(1, 10);
  for (const int32_t t : {0, 1, 2, 3, 4, 5}) append(store, 0, 0, t);
  for (const int32_t t : {1, 4}) append(store, 1, 0, t);
  append(store, 2, 0, 5);
  append(store, 2, 1, 5);
  store.rollback(0, 4);
  expect_rows(store, 0, 0, {0, 1, 2, 3});
  expect_rows(store, 1, 0, {1});
  expect_rows(store, 2, 0, {});
  expect_rows(store, 2, 1, {5});
  append(store, 1, 0, 4);
  expect_rows(store, 1, 0, {1, 4});
  store.rollback(0, 0);
  for (int64_t l = 0; l < 3; l++) EXPECT_EQ(store.slot(l, 0).length, 0);
}

TEST(KvStore, FitGivesBackWhatAPromptDidNotNeed) {
  KvStore store(config(), 1);
  store.reserve(0, 1000);
  for (int32_t t = 0; t < 1000; t++) append(store, 0, 0, t);
  for (int32_t t = 0; t < 100; t++) append(store, 1, 0, 10 * t);
  const std::vector<int32_t> before(store.slot(1, 0).position, store.slot(1, 0).position + 100);
  store.fit();
  expect_rows(store, 1, 0, before);
  EXPECT_EQ(store.slot(0, 0).capacity, 1000);
  EXPECT_LE(store.slot(1, 0).capacity, 160);
  EXPECT_LE(store.slot(2, 0).capacity, 16);
}

TEST(KvStore, ClearForgetsRowsAndMemory) {
  KvStore store(config(), 1);
  store.reserve(0, 5);
  append(store, 0, 0, 0);
  store.clear();
  EXPECT_EQ(store.slot(0, 0).length, 0);
  EXPECT_EQ(store.reserved_bytes(0), 0);
}

}  // namespace
}  // namespace isobath
