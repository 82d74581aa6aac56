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

std::string coloured(const std::vector<Piece>& pieces, const Trace& trace) {
  const int64_t shallowest = trace.shallowest(), deepest = trace.deepest() - shallowest;
  std::string out;
  int64_t now = 0;
  const auto change = [&](int64_t depth) {
    if (depth == now) return;
    out += kReset + background(depth, deepest);
    now = depth;
  };
  for (const Piece& piece : pieces) {
    const int64_t depth = piece.depth - shallowest;
    // The line's end would be invisible, and a colour that runs over it fills the line on some terminals.
    if (piece.text == "\n") {
      if (depth > 0) {
        change(depth);
        out += "\u21B5";
      }
      change(0);
      out += '\n';
      continue;
    }
    change(depth);
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

std::string counted(const Trace& trace) {
  if (!trace.counts_mlps()) return "routed blocks that a character went through: ";
  const bool skips =
      std::any_of(trace.experts.begin(), trace.experts.end(), [](const TracedExperts& e) { return e.sum.no_ops > 0; });
  return std::string("MLPs that ran for a character, over all blocks") + (skips ? " (a no-op is none): " : ": ");
}

std::string legend(const Trace& trace, bool colour) {
  const int64_t shallowest = trace.shallowest(), deepest = trace.deepest();
  std::string out = counted(trace);
  if (!colour) return out + "the number below it" + (deepest > 9 ? "; a is 10, b is 11, ..., z is 35 or more\n" : "\n");
  for (const int64_t d : legend_depths(trace))
    out += fmt::format(" {} {} {}", background(d - shallowest, deepest - shallowest), d, kReset);
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
  return legend(trace, colour) + '\n' + (colour ? coloured(pieces, trace) : interlinear(pieces));
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
