// The text of one sequence as its tokens arrive: whole characters, up to the first stop string.
//
// Text that may turn out to be the beginning of a stop string is held back until the next tokens decide, so a stop
// string that spans tokens is found and nothing of it is shown. Of several stop strings the one that begins first
// counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace isobath {

class TextStream {
 public:
  // `prompt` is passed over: it decides how the next token reads (a blank is dropped only at the start of a text).
  // Throws Error if a stop string is empty.
  TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::vector<std::string> stop);

  // What can be shown now, possibly nothing. Valid until the next call.
  std::string_view push(int32_t id) { return show(decoder_.push(id), false); }
  // What was held back, when nothing more will come.
  std::string_view finish() { return show(decoder_.finish(), true); }
  bool stopped() const { return stopped_; }  // a stop string was found: nothing more is shown

 private:
  std::string_view show(std::string_view text, bool last);
  size_t undecided() const;
  Decoder decoder_;
  std::vector<std::string> stop_;
  std::string held_, shown_;
  bool stopped_ = false;
};

}  // namespace isobath
