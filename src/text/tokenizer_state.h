// The inside of a Tokenizer: what is done to a text, in order.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/split_pattern.h"
#include "text/tokenizer.h"

namespace isobath {

// A change of the text itself. Empty texts stay empty.
struct Rewrite {
  enum class Kind : uint8_t { kReplace, kPrepend, kPrependIfMissing, kPrependIfMissingAtStart };
  Kind kind;
  std::string from, to;  // prepended is `to`
};
std::string rewrite(std::string_view text, const std::vector<Rewrite>& rewrites, bool at_start);

// Cuts a text where a pattern matches.
struct Splitter {
  SplitPattern pattern;
  bool keep_matches = true, keep_gaps = true;
};

struct Tokenizer::State {
  AddedTokens added;                // 1. found in the text as it comes
  std::vector<Rewrite> normalizer;  // 2. on what lies between
  AddedTokens added_normalized;     // 3. found in that
  std::vector<Rewrite> marks;       // 4. blanks made visible, for a pre-tokenizer
  std::vector<Splitter> splitters;  // 5. one inside the other
  std::optional<Bpe> bpe;           // 6. on each piece

  std::vector<std::string> pieces;  // bytes of a token when decoded
  std::vector<bool> special;        // decodes to nothing unless asked for
  size_t strip = 0;                 // this many blanks go from the start of a decoded text

  std::string_view piece(int32_t id, bool specials) const {
    if (id < 0 || size_t(id) >= pieces.size() || (special[size_t(id)] && !specials)) return {};
    return pieces[size_t(id)];
  }

  int32_t bos = -1, eos = -1;
  bool adds_bos = false, is_bytes = false;
  uint64_t hash = 0;
  std::vector<std::pair<std::string, std::string>> files;  // name, bytes: what save() writes
};

}  // namespace isobath
