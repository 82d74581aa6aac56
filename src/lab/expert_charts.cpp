#include "lab/expert_charts.h"

#include <algorithm>

#include "lab/chart_parts.h"
#include "lab/chart_specs.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

constexpr int64_t kStripes = 4;  // experts of a cell that are drawn

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

// "expert 3", "experts 1, 4", or why there is none
std::string given_text(const TracedExperts& e, int64_t n) {
  const auto given = e.given(n);
  if (given.empty()) return e.sum.dropped > 0 ? "no MLP, its experts were full" : "no MLP, no expert took it";
  if (given[0] >= e.experts()) return "no MLP, it took a no-op";
  return fmt::format("{} {}", given.size() == 1 ? "expert" : "experts", fmt::join(given, ", "));
}

struct Row {
  std::string label;
  const TracedLayer* layer = nullptr;      // of a routed section
  const TracedExperts* experts = nullptr;  // of one with an MLP
};

std::vector<Row> rows_of(const Trace& trace) {
  std::vector<Row> rows;
  size_t layer = 0, experts = 0;
  for (const Section& section : trace.sections)
    rows.push_back({.label = section.label(),
                    .layer = section.routed ? &trace.layer[layer++] : nullptr,
                    .experts = section.mlp() ? &trace.experts[experts++] : nullptr});
  return rows;
}

// The rectangles of one token in one row, and what the table says of it.
std::string add_cell(Json& cells, const Row& row, int64_t n, const std::string& text) {
  if (row.layer != nullptr && !row.layer->routed[size_t(n)]) return ".";
  Json cell{{"token", n}, {"block", row.label}, {"kind", "none"}, {"part", 0}, {"of", 1}, {"colour", 0}};
  const std::string tip = fmt::format("\u201C{}\u201D, token {}, block {}: ", text, n, row.label);
  if (row.experts == nullptr) {
    cell.update({{"kind", row.layer == nullptr ? "dense" : "whole"},
                 {"tip", tip + (row.layer == nullptr ? "dense" : "went through")}});
    cells.push_back(cell);
    return "#";
  }
  cell["tip"] = tip + given_text(*row.experts, n);
  if (row.experts->mlps(n) == 0) {
    cells.push_back(cell);
    return "-";
  }
  const auto given = row.experts->given(n);
  const int64_t drawn = std::min(kStripes, int64_t(given.size()));
  for (int64_t part = 0; part < drawn; part++) {
    const int expert = given[size_t(part)];
    cell.update(
        {{"kind", "expert"}, {"part", part}, {"of", drawn}, {"expert", expert}, {"colour", expert % kExpertColours}});
    cells.push_back(cell);
  }
  return fmt::format("{}", fmt::join(given, "+"));
}

// "0", "1", ...; where colours begin again "0, 10, 20", for each colour.
Json legend_of(int64_t experts) {
  Json legend = Json::array();
  for (int64_t colour = 0; colour < std::min<int64_t>(kExpertColours, experts); colour++) {
    std::string named = std::to_string(colour);
    const int64_t next = colour + kExpertColours;
    if (next < experts) named += fmt::format(", {}{}", next, next + kExpertColours < experts ? ", ..." : "");
    legend.push_back({{"experts", named}});
  }
  return legend;
}

}  // namespace

Chart expert_map(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens) {
  Chart chart;
  Json rows = Json::array(), cells = Json::array(), letters = Json::array();
  const int64_t count = std::min(tokens, trace.tokens());
  const std::vector<std::string> text = token_labels(trace, tokenizer, count);
  for (int64_t n = 0; n < count; n++) letters.push_back({{"token", n}, {"text", text[size_t(n)]}});
  int64_t experts = 0, stripes = 1;
  for (const Row& row : rows_of(trace)) {
    rows.push_back({{"block", row.label}});
    std::string run;
    for (int64_t n = 0; n < count; n++) {
      run += (n == 0 ? "" : " ") + add_cell(cells, row, n, text[size_t(n)]);
      if (row.experts != nullptr) stripes = std::max(stripes, std::min(kStripes, row.experts->mlps(n)));
    }
    if (row.experts != nullptr) experts = std::max(experts, row.experts->experts());
    chart.table.rows.push_back({"block " + row.label + (row.layer == nullptr ? "" : " (routed)"), run});
  }
  chart.table.head = {"block", "tokens: experts; - no MLP, . skipped the block"};
  chart.spec =
      with_data(kExpertMap, {{"rows", rows}, {"cells", cells}, {"letters", letters}, {"legend", legend_of(experts)}});
  set_signal(chart.spec, "tokens", count);
  set_signal(chart.spec, "blocks", trace.sections.size());
  set_signal(chart.spec, "stripes", stripes);
  set_signal(chart.spec, "digits", std::to_string(experts - 1).size());
  return chart;
}

HtmlTable expert_shares(const Trace& trace) {
  HtmlTable table{{"block"}, {}};
  const auto any = [&](auto number) {
    return std::any_of(trace.experts.begin(), trace.experts.end(),
                       [&](const TracedExperts& e) { return number(e.sum) > 0; });
  };
  const bool no_ops = any([](const LayerExperts& e) { return e.no_ops; });
  const bool dropped = any([](const LayerExperts& e) { return e.dropped; });
  const bool ruled = any([](const LayerExperts& e) { return e.agreement.rows; });
  if (no_ops) table.head.push_back("no-op");
  if (dropped) table.head.push_back("dropped choices");
  if (ruled) table.head.insert(table.head.end(), {"rule: accuracy", "always skip"});
  for (size_t e = 0; e < trace.experts[0].sum.expert_rows.size(); e++)
    table.head.push_back(fmt::format("expert {}", e));
  for (const TracedExperts& e : trace.experts) {
    std::vector<std::string> row{e.section.name()};
    if (no_ops) row.push_back(percent(e.sum.no_op_share()));
    if (dropped) row.push_back(percent(e.sum.dropped_share()));
    if (ruled) row.insert(row.end(), {percent(e.sum.agreement.accuracy()), percent(e.sum.agreement.base_rate())});
    for (size_t i = 0; i < e.sum.expert_rows.size(); i++) row.push_back(percent(e.sum.share(i)));
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace isobath
