#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/error.h"
#include "text/utf8.h"

namespace isobath {
namespace {

constexpr std::string_view kBlank = "\u2581";          // Llama style's visible blank
constexpr size_t kMaxWord = 256, kMaxWords = 1 << 17;  // bounds of what is remembered

uint64_t key_of(int32_t left, int32_t right) { return uint64_t(uint32_t(left)) << 32 | uint32_t(right); }

// Whether the token holds a blank behind something else.
bool has_inner_blank(std::string_view token) {
  while (token.starts_with(kBlank)) token.remove_prefix(kBlank.size());
  return token.find(kBlank) != token.npos;
}

}  // namespace

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 1), {~uint64_t(0), {0, -1}}) {}

size_t MergeTable::slot_of(uint64_t key) const {
  const size_t mask = slots_.size() - 1;
  size_t at = size_t((key * 0x9E3779B97F4A7C15u) >> 20) & mask;
  while (slots_[at].key != key && slots_[at].merge.id >= 0) at = (at + 1) & mask;
  return at;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  Slot& slot = slots_[slot_of(key_of(left, right))];
  size_ += slot.merge.id < 0;
  slot = {key_of(left, right), merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.merge.id < 0 ? nullptr : &slot.merge;
}

Bpe::Bpe(Vocabulary vocabulary, const Merges& merges, const BpeOptions& options)
    : vocabulary_(std::move(vocabulary)), merges_(merges.size()), options_(options) {
  const auto id_of = [&](const std::string& token, size_t rank) {
    const auto found = vocabulary_.find(token);
    require(found != vocabulary_.end(), "merge {} needs the token '{}', which is not in the vocabulary", rank, token);
    return found->second;
  };
  bool inner_blank = false;
  for (size_t rank = 0; rank < merges.size(); rank++) {
    const auto& [left, right] = merges[rank];
    const std::string whole = left + right;
    inner_blank = inner_blank || has_inner_blank(whole);
    merges_.set(id_of(left, rank), id_of(right, rank), {uint32_t(rank), id_of(whole, rank)});
  }
  for (uint32_t byte = 0; byte < 256; byte++) {
    const auto found =
        vocabulary_.find(options.byte_level ? std::string(1, char(byte)) : fmt::format("<0x{:02X}>", byte));
    byte_id_[byte] = found == vocabulary_.end() ? -1 : found->second;
  }
  // Where no merge makes a token with a blank behind something else, no merge crosses such a place, and a text without
  // other cuts may be cut there: same ids, and words that can be remembered.
  cut_at_blank_ = !options.byte_level && !options.ignore_merges && !inner_blank && vocabulary_.contains(kBlank);
}

void Bpe::encode(std::string_view piece, Memory& memory, std::vector<int32_t>& append_to) const {
  if (!cut_at_blank_) return encode_word(piece, memory, append_to);
  while (!piece.empty()) {
    size_t end = 0;
    while (piece.substr(end).starts_with(kBlank)) end += kBlank.size();
    end = std::min(piece.find(kBlank, end), piece.size());
    encode_word(piece.substr(0, end), memory, append_to);
    piece.remove_prefix(end);
  }
}

void Bpe::encode_word(std::string_view word, Memory& memory, std::vector<int32_t>& append_to) const {
  if (options_.byte_level && merges_.empty()) {
    const auto begin = int64_t(append_to.size());
    append_to.resize(append_to.size() + word.size());
    const auto out = append_to.begin() + begin;
    std::transform(word.begin(), word.end(), out, [&](char c) { return byte_id_[uint8_t(c)]; });
    const auto missing = std::find(out, append_to.end(), -1);
    require(missing == append_to.end(), "the tokenizer has no token for the byte {}",
            missing == append_to.end() ? 0 : uint8_t(word[size_t(missing - out)]));
    return;
  }
  if (const auto known = memory.words.find(word); known != memory.words.end()) {
    const auto& [begin, end] = known->second;
    append_to.insert(append_to.end(), memory.ids.begin() + begin, memory.ids.begin() + end);
    return;
  }
  const size_t begin = append_to.size();
  const auto whole = options_.ignore_merges ? vocabulary_.find(word) : vocabulary_.end();
  if (whole != vocabulary_.end())
    append_to.push_back(whole->second);
  else
    merge_word(word, memory, append_to);
  if (word.size() > kMaxWord || memory.words.size() >= kMaxWords) return;
  const auto at = uint32_t(memory.ids.size());
  memory.ids.insert(memory.ids.end(), append_to.begin() + int64_t(begin), append_to.end());
  memory.words.emplace(word, Memory::Range{at, uint32_t(memory.ids.size())});
}

void Bpe::push_symbols(std::string_view word, std::vector<Memory::Symbol>& symbols) const {
  const auto push = [&](int32_t id) {
    const auto n = int32_t(symbols.size());
    symbols.push_back({id, n - 1, n + 1});
  };
  size_t unknown_end = 0;  // where a run of unknown text that was given a token ends
  for (size_t at = 0; at < word.size();) {
    const Utf8Char c = options_.byte_level ? Utf8Char{0, 1, false} : utf8_front(word.substr(at));
    const std::string_view text = word.substr(at, c.code == kInvalidUtf8 ? 1 : c.size);
    at += text.size();
    const auto has_byte = [&](char byte) { return byte_id_[uint8_t(byte)] >= 0; };
    const auto known = options_.byte_level ? vocabulary_.end() : vocabulary_.find(text);
    if (known != vocabulary_.end()) {
      push(known->second);
    } else if ((options_.byte_level || options_.byte_fallback) && std::all_of(text.begin(), text.end(), has_byte)) {
      for (const char byte : text) push(byte_id_[uint8_t(byte)]);
    } else {
      require(options_.unk >= 0, "the tokenizer has no token for '{}' (byte {}) and no unknown token", text,
              uint8_t(text[0]));
      const bool fused = options_.fuse_unk && unknown_end > 0 && unknown_end == at - text.size();
      if (!fused) push(options_.unk);
      unknown_end = at;
    }
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

// Queues the merge of a symbol with the next one, if there is such a merge.
void Bpe::push_pair(int32_t left, Memory& memory) const {
  const auto& symbol = memory.symbols[size_t(left)];
  if (symbol.next < 0) return;
  const auto* merge = merges_.find(symbol.id, memory.symbols[size_t(symbol.next)].id);
  if (merge != nullptr) memory.queue.push_back(uint64_t(merge->rank) << 32 | uint32_t(left));
}

void Bpe::merge_word(std::string_view word, Memory& memory, std::vector<int32_t>& append_to) const {
  require(word.size() < size_t(1) << 31, "a text of {} bytes without a cut is too long to encode", word.size());
  auto& symbols = memory.symbols;
  auto& queue = memory.queue;
  symbols.clear();
  queue.clear();
  push_symbols(word, symbols);
  for (size_t i = 0; i < symbols.size(); i++) push_pair(int32_t(i), memory);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  const auto queue_pair = [&](int32_t left) {
    const size_t before = queue.size();
    push_pair(left, memory);
    if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const auto rank = uint32_t(queue.back() >> 32);
    const auto left = int32_t(uint32_t(queue.back()));
    queue.pop_back();
    auto& symbol = symbols[size_t(left)];
    if (symbol.id < 0 || symbol.next < 0) continue;
    auto& next = symbols[size_t(symbol.next)];
    const auto* merge = merges_.find(symbol.id, next.id);
    if (merge == nullptr || merge->rank != rank) continue;  // one of the two was merged since
    symbol.id = merge->id;
    symbol.next = next.next;
    next.id = -1;
    if (symbol.next >= 0) symbols[size_t(symbol.next)].previous = left;
    queue_pair(left);
    if (symbol.previous >= 0) queue_pair(symbol.previous);
  }
  for (const auto& symbol : symbols)
    if (symbol.id >= 0) append_to.push_back(symbol.id);
}

}  // namespace isobath
