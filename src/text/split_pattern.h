// Regular expressions that cut a text into pieces before it is encoded (PCRE2 with Unicode properties, compiled to
// machine code where the system allows it).
//
// \s, \d, \w and \p{..} follow Unicode. Against the engine of Hugging Face's tokenizers one difference is known: here
// \s also matches U+180E, which Unicode took off the list of blanks in 2013.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace isobath {

// What a search needs besides the pattern. One per thread.
class SplitScratch {
 public:
  SplitScratch();
  SplitScratch(SplitScratch&&) noexcept;
  ~SplitScratch();

 private:
  friend class SplitPattern;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

class SplitPattern {
 public:
  enum class Kind : uint8_t { kRegex, kLiteral };
  // Throws Error on a pattern that does not compile.
  SplitPattern(const std::string& pattern, Kind kind);

  struct Match {
    size_t begin, end;
  };
  static constexpr size_t kNone = size_t(-1);
  // The first match that is not empty at or after `from`; begin is kNone if there is none. The text must be UTF-8.
  // Throws Error when the pattern takes too many steps.
  Match find(std::string_view text, size_t from, SplitScratch& scratch) const;

 private:
  std::string pattern_;
  std::shared_ptr<const void> code_;
};

}  // namespace isobath
