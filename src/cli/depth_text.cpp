#include "cli/depth_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.h"
#include "cli/run_text.h"
#include "cli/terminal.h"

namespace isobath::cli {
namespace {

constexpr const char* kReset = "\033[0m";
constexpr int kColumns = 96;  // of the text without colour

// xterm's 256 colours: from shallow water to deep. Dark letters on the first half, light ones on the second.
std::string background(int64_t depth, int64_t deepest) {
  constexpr std::array kBlues{153, 117, 75, 33, 27, 20, 18};
  if (depth == 0) return "";
  const int64_t i = deepest <= 1 ? 3 : (depth - 1) * int64_t(kBlues.size() - 1) / (deepest - 1);
  return fmt::format("\033[48;5;{}m\033[38;5;{}m", kBlues[size_t(i)], i < 3 ? 16 : 231);
}

std::string coloured(const std::vector<Piece>& pieces, int64_t deepest) {
  std::string out;
  int64_t now = 0;
  const auto change = [&](int64_t depth) {
    if (depth == now) return;
    out += kReset + background(depth, deepest);
    now = depth;
  };
  for (const Piece& piece : pieces) {
    // The line's end would be invisible, and a colour that runs over it fills the line on some terminals.
    if (piece.text == "\n") {
      if (piece.depth > 0) {
        change(piece.depth);
        out += "\u21B5";
      }
      change(0);
      out += '\n';
      continue;
    }
    change(piece.depth);
    out += without_controls(piece.text);
  }
  change(0);
  return out + '\n';
}

// Depths as one character each: 0-9, then a-z.
char digit(int64_t depth) { return depth < 10 ? char('0' + depth) : char('a' + std::min<int64_t>(depth - 10, 25)); }

std::string interlinear(const std::vector<Piece>& pieces) {
  std::string out, text, digits;
  const auto flush = [&] {
    if (!digits.empty()) out += text + '\n' + digits + '\n';
    text.clear();
    digits.clear();
  };
  for (const Piece& piece : pieces) {
    for (const char c : without_controls(piece.text)) {
      const bool continues = (uint8_t(c) & 0xC0) == 0x80;  // a later byte of a UTF-8 character
      if (!continues && digits.size() >= kColumns) flush();
      if (c == '\n')
        text += "\u21B5";
      else
        text += c == '\t' ? '?' : c;
      if (!continues) digits += digit(piece.depth);
      if (c == '\n') flush();
    }
  }
  flush();
  return out;
}

std::string legend(int64_t deepest, bool colour) {
  std::string out = "routed blocks that a character went through: ";
  if (!colour) return out + "the number below it\n";
  for (int64_t d = 0; d <= deepest; d++) out += fmt::format(" {} {} {}", background(d, deepest), d, kReset);
  return out + '\n';
}

}  // namespace

bool use_colour(const std::string& when) {
  if (when == "always") return true;
  const char* refused = std::getenv("NO_COLOR");
  return when == "auto" && output_is_terminal() && (refused == nullptr || *refused == '\0');
}

std::string depth_text(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens, bool colour) {
  const std::vector<Piece> pieces = pieces_of(trace, tokenizer, tokens);
  const int64_t deepest = int64_t(trace.layer.size());
  return legend(deepest, colour) + '\n' + (colour ? coloured(pieces, deepest) : interlinear(pieces));
}

std::string bars(const std::vector<int64_t>& count) {
  constexpr std::array kBars{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int64_t most = count.empty() ? 1 : std::max<int64_t>(1, *std::max_element(count.begin(), count.end()));
  std::string out;
  for (const int64_t n : count) out += kBars[size_t((n * 8 + most - 1) / most)];
  return out;
}

std::string router_weight_text(const Trace& trace) {
  std::string out;
  for (const TracedLayer& layer : trace.layer) {
    const Histogram h = histogram(layer.score, 48, layer.border);
    const int64_t above =
        std::count_if(layer.score.begin(), layer.score.end(), [&](float r) { return r > float(layer.border); });
    out += fmt::format("{}  {:>7.3f} |{}| {:<7.3f} {:.1f}% above {:.4g}\n", padded_name(layer.section), h.low,
                       bars(h.count), h.edge_of(h.count.size()), 100 * double(above) / double(layer.score.size()),
                       layer.border);
  }
  return out;
}

}  // namespace isobath::cli
