#include "generate/kv_store.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace isobath {
namespace {

ModelConfig config() {
  ModelConfig c;
  c.num_hidden_layers = 3;
  c.num_key_value_heads = 2;
  c.num_attention_heads = 2;
  c.head_dim = 3;
  c.max_position_embeddings = 600;
  return c;
}
constexpr int64_t kCols = 6;

float number(int64_t layer, int64_t sequence, int32_t position, int64_t column) {
  return float(1000 * layer + 100 * sequence + position) + float(column) / 8;
}

// What a layer does in a pass: appends rows whose numbers tell layer, sequence, position and column.
void append(KvStore& store, int64_t layer, int64_t sequence, int32_t position) {
  float key[kCols], value[kCols];
  for (int64_t k = 0; k < kCols; k++) {
    key[k] = number(layer, sequence, position, k);
    value[k] = -key[k];
  }
  const KvLayer cache = store.view().layer(layer);
  cache.append(cache.slots[size_t(sequence)], position, key, value);
}

// `writer` is the sequence that wrote the rows.
void expect_rows(const KvStore& store, int64_t layer, int64_t sequence, const std::vector<int32_t>& positions,
                 int64_t writer) {
  ASSERT_EQ(store.positions(layer, sequence), positions);
  const KvSlot& slot = store.slot(layer, sequence);
  const KvPages& pages = store.pool().memory();
  for (int64_t i = 0; i < slot.length; i++)
    for (int64_t k = 0; k < kCols; k++) {
      const int32_t page = slot.page[i / kPageRows];
      const int64_t row = i % kPageRows;
      const float want = number(layer, writer, positions[size_t(i)], k);
      ASSERT_EQ(pages.keys<float>(page, k / 3)[k % 3 * kPageRows + row], want);
      ASSERT_EQ(pages.values<float>(page, k / 3)[row * 3 + k % 3], -want);
    }
}

std::vector<int32_t> count_to(int32_t n) {
  std::vector<int32_t> all;
  for (int32_t t = 0; t < n; t++) all.push_back(t);
  return all;
}

TEST(KvStore, StartsEmptyWithRoomForAllContexts) {
  const KvStore store(config(), 2, 0, Storage::kF32);
  EXPECT_EQ(store.pool().pages(), 2 * 3 * 38);
  EXPECT_EQ(store.pool().free_pages(), store.pool().pages());
  for (int64_t l = 0; l < 3; l++) EXPECT_EQ(store.used_bytes(l) + store.held_bytes(l), 0);
}

TEST(KvStore, BudgetIsNeverExceeded) {
  const KvPages page{.data = nullptr, .G = 2, .K = 3};
  const KvStore store(config(), 2, 5 * page.page_bytes() - 1, Storage::kF32);
  EXPECT_EQ(store.pool().pages(), 4);
  EXPECT_EQ(KvStore(config(), 1, 1, Storage::kF32).pool().pages(), 0);
  const KvStore narrow(config(), 2, 5 * page.page_bytes() - 1, Storage::kBf16);
  EXPECT_GT(narrow.pool().pages(), 5);
}

TEST(KvStore, PagesAreTakenForRowsOfTheLayerOnly) {
  KvStore store(config(), 2, 0, Storage::kF32);
  for (int32_t t = 0; t < 500; t++) append(store, 1, 1, t);
  expect_rows(store, 1, 1, count_to(500), 1);
  EXPECT_EQ(store.used_bytes(1), 500 * 2 * kCols * 4);
  EXPECT_EQ(store.held_bytes(1), 32 * store.pool().memory().page_bytes());
  EXPECT_EQ(store.held_bytes(0) + store.held_bytes(2), 0);
  EXPECT_EQ(store.pool().free_pages(), store.pool().pages() - 32);
}

TEST(KvStore, PagesNeededIsTheMostThatRowsCanTake) {
  KvStore store(config(), 1, 0, Storage::kF32);
  EXPECT_EQ(store.pages_needed(0, 1), 3);
  EXPECT_EQ(store.pages_needed(0, 17), 6);
  for (int32_t t = 0; t < 15; t++) append(store, 0, 0, t);
  append(store, 1, 0, 3);
  EXPECT_EQ(store.pages_needed(0, 1), 1);
  EXPECT_EQ(store.pages_needed(0, 2), 2);
  EXPECT_EQ(store.pages_needed(0, 16), 4 - 1);
}

TEST(KvStore, RollbackDropsByPositionInEveryLayerAndGivesPagesBack) {
  KvStore store(config(), 2, 0, Storage::kF32);
  for (int32_t t = 0; t < 40; t++) append(store, 0, 0, t);
  for (const int32_t t : {1, 4, 33}) append(store, 1, 0, t);
  append(store, 2, 0, 35);
  append(store, 2, 1, 35);
  store.rollback(0, 33);
  expect_rows(store, 0, 0, count_to(33), 0);
  expect_rows(store, 1, 0, {1, 4}, 0);
  expect_rows(store, 2, 0, {}, 0);
  expect_rows(store, 2, 1, {35}, 1);
  EXPECT_EQ(store.pool().pages() - store.pool().free_pages(), 3 + 1 + 0 + 1);
  store.rollback(0, 16);
  EXPECT_EQ(store.pool().pages() - store.pool().free_pages(), 1 + 1 + 0 + 1);
  append(store, 0, 0, 16);
  expect_rows(store, 0, 0, count_to(17), 0);
  store.release(0);
  store.release(1);
  EXPECT_EQ(store.pool().free_pages(), store.pool().pages());
}

TEST(KvStore, SharedRowsStayAsTheyAreWhoeverGoesOn) {
  KvStore store(config(), 3, 0, Storage::kF32);
  for (int32_t t = 0; t < 20; t++) append(store, 0, 0, t);
  for (const int32_t t : {2, 9, 19}) append(store, 1, 0, t);
  KvShare share = store.share(0);
  store.adopt(1, share, 20);
  store.adopt(2, share, 9);
  EXPECT_EQ(store.pool().pages() - store.pool().free_pages(), 3) << "shared, not copied";
  expect_rows(store, 0, 1, count_to(20), 0);
  expect_rows(store, 0, 2, count_to(9), 0);
  expect_rows(store, 1, 2, {2}, 0);
  EXPECT_EQ(store.pages_needed(1, 1), 1 + 1 + 1) << "two last pages to copy, one layer without a page";

  // All three write behind what they share; each keeps its own.
  for (int64_t b = 0; b < 3; b++)
    for (int32_t t = 20; t < 40; t++) append(store, 0, b, t + 100 * int32_t(b));
  EXPECT_EQ(store.positions(0, 0)[20], 20);
  EXPECT_EQ(store.positions(0, 1)[20], 120);
  EXPECT_EQ(store.positions(0, 2)[9], 220);
  store.release(0);
  store.release(2);
  store.adopt(0, share, 20);
  expect_rows(store, 0, 0, count_to(20), 0);
  const std::vector<int32_t> own = store.positions(0, 1);
  EXPECT_EQ(std::vector<int32_t>(own.begin(), own.begin() + 20), count_to(20));
  for (const int64_t b : {0, 1}) store.release(b);
  EXPECT_EQ(store.pool().pages() - store.pool().free_pages(), 3) << "what is remembered is held";
  store.release(share);
  EXPECT_EQ(store.pool().free_pages(), store.pool().pages());
  for (int64_t l = 0; l < 3; l++) EXPECT_EQ(store.held_bytes(l), 0);
}

TEST(KvStore, EmptyPoolIsAnErrorNotAnOverrun) {
  const KvPages page{.data = nullptr, .G = 2, .K = 3};
  KvStore store(config(), 1, page.page_bytes(), Storage::kF32);
  append(store, 0, 0, 0);
  EXPECT_THROW(append(store, 1, 0, 0), Error);
}

TEST(KvStore, Bf16RowsAreRounded) {
  KvStore store(config(), 1, 0, Storage::kBf16);
  float row[kCols];
  std::fill_n(row, kCols, 1.0f + 1.0f / 512);
  const KvLayer cache = store.view().layer(0);
  cache.append(cache.slots[0], 7, row, row);
  EXPECT_EQ(to_f32(store.pool().memory().keys<Bf16>(store.slot(0, 0).page[0], 1)[0]), 1.0f);
  EXPECT_EQ(store.positions(0, 0), std::vector<int32_t>{7});
}

}  // namespace
}  // namespace isobath
