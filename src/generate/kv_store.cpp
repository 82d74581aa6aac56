#include "generate/kv_store.h"

#include <algorithm>

#include "base/error.h"

namespace isobath {
namespace {

int64_t page_count(const ModelConfig& c, int64_t sequences, int64_t bytes, Storage storage) {
  if (bytes == 0)
    return sequences * c.num_hidden_layers * pages_for(c.max_position_embeddings);  // a block attends once
  const KvPages page{.data = nullptr, .G = c.heads().G, .K = c.heads().K, .storage = storage};
  return bytes / page.page_bytes();
}

}  // namespace

KvStore::KvStore(const ModelConfig& c, int64_t sequences, int64_t bytes, Storage storage)
    : layers_(c.sections()),
      sequences_(sequences),
      pool_(page_count(c, sequences, bytes, storage), layers_, c.heads().G, c.heads().K, storage),
      tables_(size_t(layers_ * sequences * pages_for(c.max_position_embeddings))),
      slots_(size_t(layers_ * sequences)) {
  for (int64_t l = 0; l < layers_; l++) attends_.push_back(c.section(l).attention());
  attending_ = std::count(attends_.begin(), attends_.end(), true);
  int32_t* table = tables_.data();
  for (KvSlot& slot : slots_) {
    slot.page = table;
    table += pages_for(c.max_position_embeddings);
  }
}

std::vector<int32_t> KvStore::positions(int64_t layer, int64_t sequence) const {
  const KvSlot& s = slot(layer, sequence);
  std::vector<int32_t> all;
  for (int64_t i = 0; i < s.length; i++) all.push_back(pool_.memory().position(s.page[i / kPageRows])[i % kPageRows]);
  return all;
}

int64_t KvStore::pages_needed(int64_t sequence, int64_t rows) const {
  int64_t pages = 0;
  for (int64_t l = 0; l < layers_; l++) {
    if (!attends_[size_t(l)]) continue;
    const KvSlot& s = slot(l, sequence);
    const bool copies = s.length % kPageRows > 0 && pool_.shared(s.page[s.pages() - 1]);
    pages += pages_for(s.length + rows) - s.pages() + (copies ? 1 : 0);
  }
  return pages;
}

// Rows of positions below `tokens`, of `length` that ascend.
int64_t KvStore::rows_below(const int32_t* page, int64_t length, int64_t tokens) const {
  while (length > 0) {
    const int32_t* position = pool_.memory().position(page[(length - 1) / kPageRows]);
    const int64_t first = (length - 1) / kPageRows * kPageRows;
    if (position[0] < tokens)
      return first + (std::lower_bound(position, position + (length - first), int32_t(tokens)) - position);
    length = first;
  }
  return 0;
}

void KvStore::rollback(int64_t sequence, int64_t tokens) {
  for (int64_t l = 0; l < layers_; l++) {
    KvSlot& s = at(l, sequence);
    const int64_t kept = rows_below(s.page, s.length, tokens);
    for (int64_t p = pages_for(kept); p < s.pages(); p++) pool_.release(s.page[p]);
    s.length = kept;
  }
}

KvShare KvStore::share(int64_t sequence) {
  KvShare share;
  for (int64_t l = 0; l < layers_; l++) {
    const KvSlot& s = slot(l, sequence);
    share.length.push_back(s.length);
    share.page.insert(share.page.end(), s.page, s.page + s.pages());
  }
  for (const int32_t page : share.page) pool_.share(page);
  return share;
}

void KvStore::adopt(int64_t sequence, const KvShare& share, int64_t tokens) {
  const int32_t* page = share.page.data();
  for (int64_t l = 0; l < layers_; l++) {
    KvSlot& s = at(l, sequence);
    require(s.length == 0, "key/value cache: a sequence with {} rows in layer {} cannot begin with another's", s.length,
            l);
    s.length = rows_below(page, share.length[size_t(l)], tokens);
    std::copy_n(page, s.pages(), s.page);
    for (int64_t p = 0; p < s.pages(); p++) pool_.share(s.page[p]);
    page += pages_for(share.length[size_t(l)]);
  }
}

void KvStore::release(KvShare& share) {
  for (const int32_t page : share.page) pool_.release(page);
  share = {};
}

int64_t KvStore::used_bytes(int64_t layer) const {
  int64_t rows = 0;
  for (int64_t b = 0; b < sequences_; b++) rows += slot(layer, b).length;
  return rows * pool_.memory().row_bytes();
}

}  // namespace isobath
