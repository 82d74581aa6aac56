#include "text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace isobath {
namespace {

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct SplitScratch::Parts {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, 16 << 20, nullptr);  // reserved, taken as needed
  Parts() { pcre2_jit_stack_assign(context, nullptr, stack); }
  Parts(const Parts&) = delete;
  ~Parts() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

SplitScratch::SplitScratch() : parts_(std::make_unique<Parts>()) {}
SplitScratch::SplitScratch(SplitScratch&&) noexcept = default;
SplitScratch::~SplitScratch() = default;

SplitPattern::SplitPattern(const std::string& pattern, Kind kind) : pattern_(pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  // Literal patterns take no UCP: properties have no meaning there.
  const uint32_t options = PCRE2_UTF | (kind == Kind::kLiteral ? PCRE2_LITERAL : PCRE2_UCP);
  pcre2_code* code = pcre2_compile(units(pattern), pattern.size(), options, &error, &at, nullptr);
  require(code != nullptr, "split pattern '{}' is wrong at byte {}: {}", pattern, at, message_of(error));
  code_ = {code, [](const void* c) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(c))); }};
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it cannot, the interpreter runs
}

SplitPattern::Match SplitPattern::find(std::string_view text, size_t from, SplitScratch& scratch) const {
  auto& parts = *scratch.parts_;
  // Steps follow the text: a run of blanks is walked back once; what needs more grows without bounds.
  const size_t limit = 1'000'000 + 16 * text.size();
  pcre2_set_match_limit(parts.context, uint32_t(std::min<size_t>(limit, std::numeric_limits<uint32_t>::max())));
  const int found = pcre2_match(static_cast<const pcre2_code*>(code_.get()), units(text), text.size(), from,
                                PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, parts.data, parts.context);
  if (found == PCRE2_ERROR_NOMATCH) return {kNone, kNone};
  require(found >= 0, "split pattern '{}' failed on a text of {} bytes: {}", pattern_, text.size(), message_of(found));
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(parts.data);
  require(range[0] >= from && range[1] > range[0], "split pattern '{}' matches backwards (\\K in a lookaround)",
          pattern_);
  return {range[0], range[1]};
}

}  // namespace isobath
