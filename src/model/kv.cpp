#include "model/kv.h"

#include <numeric>

#include "base/error.h"

namespace isobath {

KvPool::KvPool(int64_t pages, int64_t layers, int64_t G, int64_t K, Storage storage)
    : memory_{.data = nullptr, .G = G, .K = K, .storage = storage},
      free_(size_t(pages)),
      references_(size_t(pages)),
      layer_(size_t(pages)),
      held_(size_t(layers)) {
  Plan plan;
  plan.add("kv.pages", bytes_, {pages, memory_.page_bytes()});
  arena_ = Arena(plan);
  memory_.data = bytes_.data;
  std::iota(free_.rbegin(), free_.rend(), 0);  // the first is taken first: memory is touched from its start
}

int32_t KvPool::take(int64_t layer) {
  if (free_.empty()) fail_work("key/value cache: all {} pages are taken", pages());
  const int32_t page = free_.back();
  free_.pop_back();
  references_[size_t(page)] = 1;
  layer_[size_t(page)] = int32_t(layer);
  held_[size_t(layer)]++;
  return page;
}

void KvPool::release(int32_t page) {
  if (--references_[size_t(page)] > 0) return;
  held_[size_t(layer_[size_t(page)])]--;
  free_.push_back(page);
}

void KvLayer::append(KvSlot& slot, int32_t position, const float* key, const float* value) const {
  const int64_t row = slot.length % kPageRows;
  int32_t& page = slot.page[slot.length / kPageRows];
  if (row == 0) {
    page = pool->take(layer);
  } else if (pool->shared(page)) {
    const int32_t own = pool->take(layer);
    copy_kv_rows(pool->memory(), own, page, row);
    pool->release(page);
    page = own;
  }
  write_kv_row(pool->memory(), page, row, position, key, value);
  slot.length++;
}

}  // namespace isobath
