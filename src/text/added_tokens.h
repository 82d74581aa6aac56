// Tokens that are found in the text as they are, before it is cut and merged: special tokens and added words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace isobath {

struct AddedToken {
  std::string content;
  int32_t id;
  bool special;         // ordinary text where special tokens are not asked for
  bool lstrip, rstrip;  // takes the blanks before, after it along
};

// Bytes of Unicode white space at the start and at the end of a text.
size_t leading_blank(std::string_view text);
size_t trailing_blank(std::string_view text);

class AddedTokens {
 public:
  void add(AddedToken token);
  void make_special(int32_t id);

  // In order: on_text(piece) for what lies between tokens, never empty, and on_token(id). At each place the longest
  // token wins.
  template <class OnText, class OnToken>
  void split(std::string_view text, bool specials, OnText on_text, OnToken on_token) const {
    size_t begin = 0;
    for (size_t at = 0; at < text.size() && !tokens_.empty();) {
      const AddedToken* token = find(text.substr(at), specials);
      if (token == nullptr) {
        at++;
        continue;
      }
      const size_t end = at + token->content.size();
      if (token->lstrip) at -= trailing_blank(text.substr(begin, at - begin));
      if (at > begin) on_text(text.substr(begin, at - begin));
      on_token(token->id);
      begin = at = end + (token->rstrip ? leading_blank(text.substr(end)) : 0);
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  const AddedToken* find(std::string_view text, bool specials) const {
    for (const uint32_t i : starting_with_[uint8_t(text[0])])
      if (text.starts_with(tokens_[i].content) && (specials || !tokens_[i].special)) return &tokens_[i];
    return nullptr;
  }

  std::vector<AddedToken> tokens_;
  std::array<std::vector<uint32_t>, 256> starting_with_;  // longest first
};

}  // namespace isobath
