#include "generate/text_stream.h"

#include <algorithm>

#include "base/error.h"

namespace isobath {

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const int32_t> prompt, std::vector<std::string> stop)
    : decoder_(tokenizer), stop_(std::move(stop)) {
  for (const std::string& s : stop_) require(!s.empty(), "a stop string is empty, expected at least one character");
  for (const int32_t id : prompt) decoder_.push(id);
}

// Bytes at the end of what is held that may begin a stop string.
size_t TextStream::undecided() const {
  size_t longest = 0;
  for (const std::string& s : stop_)
    for (size_t n = std::min(s.size() - 1, held_.size()); n > longest; n--)
      if (held_.ends_with(std::string_view(s).substr(0, n))) longest = n;
  return longest;
}

std::string_view TextStream::show(std::string_view text, bool last) {
  if (stopped_) return {};
  held_ += text;
  size_t found = std::string::npos;
  for (const std::string& s : stop_) found = std::min(found, held_.find(s));
  stopped_ = found != std::string::npos;
  const size_t count = stopped_ ? found : last ? held_.size() : held_.size() - undecided();
  shown_.assign(held_, 0, count);
  held_.erase(0, count);
  return shown_;
}

}  // namespace isobath
