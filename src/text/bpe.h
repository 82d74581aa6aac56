// Byte-pair encoding of a piece of text: symbols (bytes or characters) are merged pair by pair, the merge of lowest
// rank first, the leftmost among equals, until none applies. Source: Sennrich et al. 2016, arXiv:1508.07909.   Cost: n
// log n symbols; a word met before is looked up.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace isobath {

struct StringHash {  // finds a string_view among strings
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

struct BpeOptions {
  bool byte_level = false;     // symbols are bytes, and the vocabulary is given in bytes; else characters
  bool byte_fallback = false;  // a character without a token becomes its bytes <0xNN>
  bool fuse_unk = false;       // neighbours without a token become one unknown token
  bool ignore_merges = false;  // a piece that is in the vocabulary is that token
  int32_t unk = -1;            // -1: text without a token is an error
};

// A hash table from a pair of ids to its merge; never grows after building.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  explicit MergeTable(size_t merges = 0);
  void set(int32_t left, int32_t right, Merge merge);
  const Merge* find(int32_t left, int32_t right) const;
  bool empty() const { return size_ == 0; }

 private:
  struct Slot {
    uint64_t key;
    Merge merge;
  };
  size_t slot_of(uint64_t key) const;
  std::vector<Slot> slots_;
  size_t size_ = 0;
};

class Bpe {
 public:
  using Merges = std::vector<std::pair<std::string, std::string>>;  // in order of rank
  // Throws Error on a merge whose parts or result are not in the vocabulary.
  Bpe(Vocabulary vocabulary, const Merges& merges, const BpeOptions& options);

  // What encoding remembers and works in. One per thread.
  struct Memory {
    struct Symbol {
      int32_t id, previous, next;  // neighbours by index, -1: none; id -1: merged away
    };
    struct Range {
      uint32_t begin, end;
    };
    std::unordered_map<std::string, Range, StringHash, std::equal_to<>> words;
    std::vector<int32_t> ids;  // of the words, back to back
    std::vector<Symbol> symbols;
    std::vector<uint64_t> queue;  // rank << 32 | index of the left symbol
  };
  void encode(std::string_view piece, Memory& memory, std::vector<int32_t>& append_to) const;

 private:
  void encode_word(std::string_view word, Memory& memory, std::vector<int32_t>& append_to) const;
  void merge_word(std::string_view word, Memory& memory, std::vector<int32_t>& append_to) const;
  void push_symbols(std::string_view word, std::vector<Memory::Symbol>& symbols) const;
  void push_pair(int32_t left, Memory& memory) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::array<int32_t, 256> byte_id_;  // token of a byte, -1: none
  bool cut_at_blank_ = false;
};

}  // namespace isobath
