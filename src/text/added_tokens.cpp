#include "text/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace isobath {
namespace {

bool is_blank(uint32_t code) {  // the Unicode property White_Space
  return (code >= 9 && code <= 13) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

}  // namespace

size_t leading_blank(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const Utf8Char c = utf8_front(text.substr(n));
    if (!is_blank(c.code)) break;
    n += c.size;
  }
  return n;
}

size_t trailing_blank(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t at = begin - 1;
    while (at > 0 && begin - at < 4 && (uint8_t(text[at]) & 0xC0) == 0x80) at--;
    const Utf8Char c = utf8_front(text.substr(at, begin - at));
    if (!is_blank(c.code) || c.size != begin - at) break;
    begin = at;
  }
  return text.size() - begin;
}

void AddedTokens::make_special(int32_t id) {
  for (AddedToken& token : tokens_) token.special = token.special || token.id == id;
}

void AddedTokens::add(AddedToken token) {
  require(!token.content.empty(), "added token {} is empty", token.id);
  auto& peers = starting_with_[uint8_t(token.content[0])];
  const auto shorter = [&](uint32_t i) { return tokens_[i].content.size() < token.content.size(); };
  peers.insert(std::find_if(peers.begin(), peers.end(), shorter), uint32_t(tokens_.size()));
  tokens_.push_back(std::move(token));
}

}  // namespace isobath
