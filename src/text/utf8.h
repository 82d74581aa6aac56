// UTF-8, as far as tokenizers need it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace isobath {

struct Utf8Char {
  uint32_t code;  // kInvalidUtf8: the bytes are no character
  uint32_t size;  // bytes, 1 where invalid
  bool cut;       // the text ends in the middle of what may be a character; size is then what is there
};
inline constexpr uint32_t kInvalidUtf8 = 0xFFFFFFFF;

// The character at the front of a text that is not empty. Overlong forms, surrogates and codes over 10FFFF are invalid.
inline Utf8Char utf8_front(std::string_view text) {
  const auto byte = [&](size_t i) { return uint32_t(uint8_t(text[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, false};
  const uint32_t size = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (size == 0) return {kInvalidUtf8, 1, false};
  // The second byte alone excludes overlong forms, surrogates and too large codes (Unicode, table 3-7).
  const uint32_t low = lead == 0xE0   ? 0xA0
                       : lead == 0xF0 ? 0x90
                                      : 0x80,
                 high = lead == 0xED   ? 0x9F
                        : lead == 0xF4 ? 0x8F
                                       : 0xBF;
  uint32_t code = lead & (0x7Fu >> size);
  for (uint32_t i = 1; i < size; i++) {
    if (i == text.size()) return {kInvalidUtf8, i, true};
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xBF)) return {kInvalidUtf8, 1, false};
    code = code << 6 | (byte(i) & 0x3F);
  }
  return {code, size, false};
}

inline void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out.push_back(char(uint8_t(byte))); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xE0 | code >> 12);
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
    }
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

}  // namespace isobath
