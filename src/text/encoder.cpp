#include <algorithm>

#include "base/error.h"
#include "text/tokenizer_state.h"
#include "text/utf8.h"

namespace isobath {
namespace {

// Bytes of valid UTF-8 at the start of the text.
size_t valid_prefix(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    if (uint8_t(text[n]) < 0x80) {
      n++;
      continue;
    }
    const Utf8Char c = utf8_front(text.substr(n));
    if (c.code == kInvalidUtf8) break;
    n += c.size;
  }
  return n;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (size_t at; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size()))
    out.append(text.substr(0, at)).append(to);
  return out.append(text);
}

}  // namespace

std::string rewrite(std::string_view text, const std::vector<Rewrite>& rewrites, bool at_start) {
  std::string out(text);
  for (const Rewrite& r : rewrites) {
    if (out.empty()) break;
    const bool missing = !out.starts_with(r.to);
    if (r.kind == Rewrite::Kind::kReplace)
      out = replaced(out, r.from, r.to);
    else if (r.kind == Rewrite::Kind::kPrepend || (r.kind == Rewrite::Kind::kPrependIfMissing && missing) ||
             (r.kind == Rewrite::Kind::kPrependIfMissingAtStart && missing && at_start))
      out.insert(0, r.to);
  }
  return out;
}

struct Encoder::Memory {
  Bpe::Memory bpe;
  std::optional<SplitScratch> split;  // where the tokenizer cuts by patterns
};

Encoder::Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), memory_(std::make_unique<Memory>()) {
  if (!tokenizer.state_->splitters.empty()) memory_->split.emplace();
}
Encoder::Encoder(Encoder&&) noexcept = default;
Encoder::~Encoder() = default;

namespace {

// Steps 5 and 6 of a tokenizer.
struct Cutter {
  const Tokenizer::State& state;
  Bpe::Memory& memory;
  std::optional<SplitScratch>& scratch;
  std::vector<int32_t>& ids;

  // The piece through the splitters from `depth` on. What is not UTF-8 matches no pattern: it is a gap.
  void cut(std::string_view text, size_t depth) {
    if (depth == state.splitters.size()) return state.bpe->encode(text, memory, ids);
    const Splitter& splitter = state.splitters[depth];
    while (!text.empty()) {
      const std::string_view valid = text.substr(0, valid_prefix(text));
      size_t begin = 0;
      while (begin < valid.size()) {
        const auto match = splitter.pattern.find(valid, begin, *scratch);
        const size_t gap_end = std::min(match.begin, valid.size());
        if (gap_end > begin && splitter.keep_gaps) cut(valid.substr(begin, gap_end - begin), depth + 1);
        if (match.begin == SplitPattern::kNone) break;
        if (splitter.keep_matches) cut(valid.substr(match.begin, match.end - match.begin), depth + 1);
        begin = match.end;
      }
      text.remove_prefix(valid.size());
      size_t invalid = 0;
      while (invalid < text.size() && utf8_front(text.substr(invalid)).code == kInvalidUtf8) invalid++;
      if (invalid > 0 && splitter.keep_gaps) cut(text.substr(0, invalid), depth + 1);
      text.remove_prefix(invalid);
    }
  }
};

}  // namespace

void Encoder::encode(std::string_view text, bool specials, std::vector<int32_t>& append_to) {
  const Tokenizer::State& state = *tokenizer_.state_;
  Cutter cutter{state, memory_->bpe, memory_->split, append_to};
  const auto on_token = [&](int32_t id) { append_to.push_back(id); };
  const char* start = text.data();
  state.added.split(
      text, specials,
      [&](std::string_view between) {
        const bool at_start = between.data() == start;
        std::string normalized;
        if (!state.normalizer.empty()) between = normalized = rewrite(between, state.normalizer, at_start);
        const char* normalized_start = between.data();
        state.added_normalized.split(
            between, specials,
            [&](std::string_view piece) {
              std::string marked;
              if (!state.marks.empty())
                piece = marked = rewrite(piece, state.marks, at_start && piece.data() == normalized_start);
              cutter.cut(piece, 0);
            },
            on_token);
      },
      on_token);
}

}  // namespace isobath
