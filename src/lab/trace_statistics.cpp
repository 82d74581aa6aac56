#include "lab/trace_statistics.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace isobath {
namespace {

constexpr int64_t kBlock = 64;

RankCorrelation depth_and(const Trace& trace, const std::vector<float>& values, int64_t count) {
  require(int64_t(values.size()) == trace.tokens(), "trace: {} values for {} tokens", values.size(), trace.tokens());
  std::vector<double> depths;
  for (int64_t n = 0; n < count; n++) depths.push_back(double(trace.depth(n)));
  return rank_correlation(depths, std::vector<double>(values.begin(), values.begin() + count), kBlock);
}

// A token as text: blanks and ends of lines by their signs, what is no whole character by its number.
std::string shown(const Tokenizer& tokenizer, int32_t token) {
  Decoder decoder(tokenizer);
  const std::string text = decoder.push(token);
  if (text.empty()) return fmt::format("<{}>", token);
  std::string signs;
  for (const char c : text) {
    if (c == '\n')
      signs += "\u21B5";
    else if (c == ' ')
      signs += "\u00B7";
    else if (static_cast<unsigned char>(c) < ' ')  // would steer a terminal
      signs += fmt::format("<{}>", int(c));
    else
      signs += c;
  }
  return signs;
}

}  // namespace

RankCorrelation depth_and_entropy(const Trace& trace) { return depth_and(trace, trace.entropy, trace.tokens()); }

RankCorrelation depth_and_loss(const Trace& trace) {
  return depth_and(trace, trace.loss, std::max<int64_t>(0, trace.tokens() - 1));
}

std::string text_of(const RankCorrelation& c) {
  const std::string value = fmt::format("{:.3f}", c.value);
  return c.interval ? fmt::format("{} (95% interval {:.3f} to {:.3f})", value, c.interval->low, c.interval->high)
                    : value;
}

std::vector<TokenDepth> tokens_by_depth(const Trace& trace, int64_t least) {
  std::map<int32_t, TokenDepth> sums;
  std::map<int32_t, int64_t> scored;
  for (int64_t n = 0; n < trace.tokens(); n++) {
    TokenDepth& sum = sums[trace.token[size_t(n)]];
    sum.count++;
    sum.depth += double(trace.depth(n));
    sum.entropy += double(trace.entropy[size_t(n)]);
    if (n + 1 == trace.tokens()) continue;
    sum.loss += double(trace.loss[size_t(n)]);
    scored[trace.token[size_t(n)]]++;
  }
  std::vector<TokenDepth> tokens;
  for (auto& [token, sum] : sums) {
    if (sum.count < least) continue;
    tokens.push_back({.token = token,
                      .count = sum.count,
                      .depth = sum.depth / double(sum.count),
                      .entropy = sum.entropy / double(sum.count),
                      .loss = sum.loss / double(std::max<int64_t>(1, scored[token]))});
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const TokenDepth& a, const TokenDepth& b) { return a.depth > b.depth; });
  return tokens;
}

HtmlTable depth_table(const std::vector<TokenDepth>& tokens, const Tokenizer& tokenizer, size_t ends) {
  HtmlTable table{{"token", "times", "depth, mean", "entropy after it", "loss after it"}, {}};
  for (size_t i = 0; i < tokens.size(); i++) {
    if (tokens.size() > 2 * ends && i == ends) {
      table.rows.push_back({"...", "", "", "", ""});
      i = tokens.size() - ends;
    }
    const TokenDepth& t = tokens[i];
    table.rows.push_back({shown(tokenizer, t.token), std::to_string(t.count), fmt::format("{:.2f}", t.depth),
                          fmt::format("{:.3f}", t.entropy), fmt::format("{:.3f}", t.loss)});
  }
  return table;
}

HtmlTable shares_by_place(const Trace& trace) {
  if (trace.layer.empty()) return {};
  constexpr int64_t kParts = 8;
  const int64_t window = std::min(trace.window, trace.tokens()), parts = std::min(kParts, window);
  HtmlTable table{{"place in the window"}, {}};
  for (const TracedLayer& layer : trace.layer) table.head.push_back(layer.section.name());
  for (int64_t part = 0; part < parts; part++) {
    const int64_t first = window * part / parts, end = window * (part + 1) / parts;
    std::vector<std::string> row{fmt::format("{} to {}", first, end - 1)};
    for (const TracedLayer& layer : trace.layer) {
      int64_t routed = 0, rows = 0;
      for (int64_t n = 0; n < trace.tokens(); n++) {
        if (n % trace.window < first || n % trace.window >= end) continue;
        routed += layer.routed[size_t(n)];
        rows++;
      }
      row.push_back(fmt::format("{:.1f}%", 100 * double(routed) / double(std::max<int64_t>(1, rows))));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace isobath
