#include "lab/report.h"

#include <gtest/gtest.h>

#include <set>

#include "lab/charts.h"
#include "lab/expert_charts.h"
#include "lab/lab_support.h"
#include "lab/scan.h"

namespace isobath {
namespace {

using Json = nlohmann::json;
using testing::TinyLab;

// Elements opened and not closed, closed and not opened; "" if the page is balanced. Scripts and styles are passed
// over.
std::string imbalance(const std::string& html) {
  static const std::set<std::string> empty{"meta", "link", "!DOCTYPE"};
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag without an end: " + html.substr(at, 40);
    const bool closes = html[at + 1] == '/';
    const size_t name_at = at + 1 + closes;
    const std::string name = html.substr(name_at, html.find_first_of(" >\n", name_at) - name_at);
    at = end + 1;
    if (empty.count(name)) continue;
    if (!closes) {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name, at);
      continue;
    }
    if (open.empty() || open.back() != name)
      return "</" + name + "> inside <" + (open.empty() ? "" : open.back()) + ">";
    open.pop_back();
  }
  return open.empty() ? "" : "<" + open.back() + "> is never closed";
}

Json charts_of(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"charts\">";
  const size_t at = html.find(begin) + begin.size();
  return Json::parse(html.substr(at, html.find("</script>", at) - at));
}

TEST(Html, EscapesMarkupQuotesAndControls) {
  EXPECT_EQ(escape_html("<a href=\"x\">'&'</a>"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;&lt;/a&gt;");
  EXPECT_EQ(escape_html(std::string("a\0b\n", 4)), "a\uFFFDb\n");
}

TEST(Html, JsonCannotEndItsScript) {
  const Json json{{"text", "</script><script>alert(1)</script>"}};
  const std::string text = json_for_script(json);
  EXPECT_EQ(text.find('<'), std::string::npos);
  EXPECT_EQ(Json::parse(text), json);
  EXPECT_EQ(Json::parse(json_for_script("\xFF")), "\uFFFD") << "bytes that are not UTF-8 do not throw";
}

TEST(Html, TablesEscapeTheirCells) {
  const std::string html = table_html({{"", "<b>"}, {{"a & b", "1 < 2"}}});
  EXPECT_NE(html.find("&lt;b&gt;"), std::string::npos);
  EXPECT_NE(html.find("a &amp; b"), std::string::npos);
  EXPECT_EQ(imbalance(html), "");
}

TEST(Vega, IsEmptyWithoutTheFolderAndOnePieceWithIt) {
  testing::TempDir folder;
  EXPECT_EQ(vega_script(folder.path()), "");
  const std::string script = vega_script();
  if (script.empty()) GTEST_SKIP() << "libjs-vega is not installed";
  EXPECT_EQ(script.find("</script"), std::string::npos);
  EXPECT_EQ(script.find("sourceMappingURL"), std::string::npos);
  EXPECT_NE(script.find("define(\"vega-parser\""), std::string::npos);
}

TEST(Report, IsBalancedEscapedAndHoldsTheNumbers) {
  TinyLab lab;
  Comparison c = lab.compare(1e8);
  c.mod.samples[0].text = "</pre><script>alert('no')</script>";
  const std::string page = comparison_page(c, lab.tokenizer, "/* vega */");
  EXPECT_EQ(imbalance(page), "");
  EXPECT_EQ(page.find("<script>alert"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(&#39;no&#39;)"), std::string::npos);
  EXPECT_NE(page.find("/* vega */"), std::string::npos);
  EXPECT_EQ(page.find("src=\"http"), std::string::npos) << "nothing is fetched";
  for (const double figure :
       {c.dense.evaluation.top_k.loss, c.mod.evaluation.top_k.loss, c.mod.evaluation.causal->loss, c.baseline.trigram})
    EXPECT_NE(page.find(fmt::format("{:.4f}", figure)), std::string::npos) << figure;
  for (const Verdict& verdict : judge(c)) EXPECT_NE(page.find(escape_html(verdict.text)), std::string::npos);

  const Json charts = charts_of(page);
  ASSERT_EQ(charts.size(), 5u);
  for (size_t i = 0; i < charts.size(); i++) EXPECT_NE(page.find(fmt::format("id=\"chart-{}\"", i)), std::string::npos);
  EXPECT_EQ(charts[0]["data"][1]["name"], "validation");
  EXPECT_EQ(charts[0]["data"][1]["values"].size(), c.dense.validation.size() + c.mod.validation.size());
}

TEST(ScanPage, HoldsAChartAndATableOfEachAxis) {
  StepScan scan{"a machine <x>", {{"context", "at 8192 tokens", {}}, {"width", "none was measured", {}}}};
  for (const int64_t T : {256, 1024})
    scan.axes[0].points.push_back({.value = std::to_string(T),
                                   .detail = fmt::format("{} sequences", 8192 / T),
                                   .dense_ms = spread_of({10, 12, 11}),
                                   .mod_ms = spread_of({6}),
                                   .dense_share = spread_of({0.71, 0.75, 0.73}),
                                   .mod_share = spread_of({0.7}),
                                   .time_ratio = spread_of({0.5, 0.55}),
                                   .flop_ratio = 0.5,
                                   .limit = T >= 1024 ? 1.03 : 1.05});
  const std::string page = scan_page(scan, "/* vega */");
  EXPECT_EQ(imbalance(page), "");
  for (const char* part : {"a machine &lt;x&gt;", "at 8192 tokens", "none was measured", "32 sequences",
                           "73.0% (71.0 to 75.0)", "11.0", "0.525", "1.050"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  const Json charts = charts_of(page);
  ASSERT_EQ(charts.size(), 1u);
  EXPECT_EQ(charts[0]["data"][0]["values"].size(), 4u) << "two models at two points";
  const Json& ratio = charts[0]["data"][1]["values"][1];
  EXPECT_EQ(ratio["value"], "1024");
  EXPECT_DOUBLE_EQ(ratio["low"], 1.0);
  EXPECT_DOUBLE_EQ(ratio["high"], 1.1);
  EXPECT_DOUBLE_EQ(ratio["limit"], 1.03);
}

TEST(Report, AnInspectionShowsTheTextWithItsDepths) {
  Trace trace;
  trace.by = SelectBy::kCausal;
  trace.sections = {{.index = 0, .block = 0}, {.index = 1, .block = 1, .routed = true}};
  trace.window = 8;
  trace.token = Tokenizer::bytes().encode("a<b\n");
  trace.entropy = trace.loss = {0.5f, 1.0f, 1.5f, 2.0f};
  trace.layer.push_back({.section = {.index = 1, .block = 1, .routed = true},
                         .capacity = 0.125,
                         .routed = {0, 1, 0, 0},
                         .score = {-1, 2, -3, -4},
                         .routing = {.section = {.index = 1, .block = 1, .routed = true}, .routed = 1, .rows = 4}});
  const std::string page = inspection_page({"runs/<x>", "text", trace}, Tokenizer::bytes(), "");
  EXPECT_EQ(imbalance(page), "");
  EXPECT_NE(page.find("<i class=\"d0\" data-t=\"blocks none, entropy 0.50\">a</i>"), std::string::npos);
  EXPECT_NE(page.find("<i class=\"d1\" data-t=\"blocks 1, entropy 1.00\">&lt;</i>"), std::string::npos);
  EXPECT_NE(page.find("runs/&lt;x&gt;"), std::string::npos);
  EXPECT_EQ(charts_of(page).size(), 4u);
}

// Four tokens of two blocks with twelve experts and a no-op: dense, then routed where asked.
Trace trace_with_experts(bool routed) {
  Trace trace;
  trace.by = SelectBy::kCausal;
  trace.sections = {{.index = 0, .block = 0}, {.index = 1, .block = 1, .routed = routed}};
  trace.window = 8;
  trace.token = Tokenizer::bytes().encode("a<b\n");
  trace.entropy = trace.loss = {0.5f, 1.0f, 1.5f, 2.0f};
  const auto experts = [](Section section, std::vector<uint8_t> here, std::vector<int64_t> begin,
                          std::vector<uint8_t> output, int64_t no_ops) {
    TracedExperts e{
        .section = section, .here = std::move(here), .begin = std::move(begin), .output = std::move(output)};
    e.sum = {.block = section.block, .expert_rows = std::vector<int64_t>(12, 0), .rows = 4, .no_ops = no_ops};
    for (const uint8_t o : e.output)
      if (o < 12) e.sum.expert_rows[o]++;
    return e;
  };
  trace.experts = {experts(trace.sections[0], {1, 1, 1, 1}, {0, 1, 2, 3, 4}, {3, 12, 11, 3}, 1)};
  if (routed) {
    trace.layer.push_back({.section = trace.sections[1],
                           .capacity = 0.5,
                           .routed = {0, 1, 0, 1},
                           .score = {-1, 2, -3, 4},
                           .routing = {.section = trace.sections[1], .routed = 2, .rows = 4}});
    trace.experts.push_back(experts(trace.sections[1], {0, 1, 0, 1}, {0, 0, 6, 6, 6}, {0, 1, 2, 5, 10, 11}, 0));
  } else {
    trace.experts.push_back(experts(trace.sections[1], {1, 1, 1, 1}, {0, 0, 6, 7, 8}, {0, 1, 2, 5, 10, 11, 12, 4}, 1));
  }
  return trace;
}

const Json& set_of(const Json& spec, const char* name) {
  for (const Json& set : spec["data"])
    if (set["name"] == name) return set["values"];
  throw std::out_of_range(name);
}

TEST(Charts, AMapOfExpertsHasTheirNumbersAndSaysWhyThereIsNone) {
  const Chart chart = expert_map(trace_with_experts(true), Tokenizer::bytes(), 99);
  ASSERT_EQ(chart.table.rows.size(), 2u);
  EXPECT_EQ(chart.table.rows[0], (std::vector<std::string>{"block 0", "3 - 11 3"}));
  EXPECT_EQ(chart.table.rows[1], (std::vector<std::string>{"block 1 (routed)", ". 0+1+2+5+10+11 . -"}));
  const Json& cells = set_of(chart.spec, "cells");
  ASSERT_EQ(cells.size(), 4u + 4u + 1u) << "of six experts four are drawn; a token that was left out has no cell";
  EXPECT_EQ(cells[0]["expert"], 3);
  EXPECT_EQ(cells[0]["tip"], "\u201Ca\u201D, token 0, block 0: expert 3");
  EXPECT_EQ(cells[1]["kind"], "none");
  EXPECT_EQ(cells[1]["tip"], "\u201C<\u201D, token 1, block 0: no MLP, it took a no-op");
  EXPECT_EQ(cells[2]["expert"], 11);
  EXPECT_EQ(cells[2]["colour"], 1) << "colours begin again after ten";
  EXPECT_EQ(cells[7]["part"], 3);
  EXPECT_EQ(cells[7]["of"], 4);
  EXPECT_EQ(cells[7]["tip"], "\u201C<\u201D, token 1, block 1: experts 0, 1, 2, 5, 10, 11");
  EXPECT_EQ(cells[8]["tip"], "\u201C\u21B5\u201D, token 3, block 1: no MLP, no expert took it");
  const Json& legend = set_of(chart.spec, "legend");
  ASSERT_EQ(legend.size(), 10u);
  EXPECT_EQ(legend[1]["experts"], "1, 11");
  EXPECT_EQ(legend[9]["experts"], "9");
}

TEST(Report, AnInspectionOfExpertsNeedsNoRoutedBlock) {
  const std::string page = inspection_page({"runs/moe", "text", trace_with_experts(false)}, Tokenizer::bytes(), "");
  EXPECT_EQ(imbalance(page), "");
  EXPECT_NE(page.find("<i class=\"d1\" data-t=\"MLPs 1, entropy 0.50\">a</i>"), std::string::npos);
  EXPECT_NE(page.find("<i class=\"d6\" data-t=\"MLPs 6, entropy 1.00\">&lt;</i>"), std::string::npos);
  EXPECT_EQ(page.find("Router weights"), std::string::npos);
  EXPECT_NE(page.find("data-name=\"routing-map\""), std::string::npos);
  EXPECT_NE(page.find(">expert 11</th>"), std::string::npos);
  EXPECT_NE(page.find("<td>25.0%</td>"), std::string::npos) << "a no-op of four";
  EXPECT_EQ(charts_of(page).size(), 2u) << "map and entropy";

  Trace even = trace_with_experts(false);
  even.experts.pop_back();
  even.sections.pop_back();
  even.experts[0].output = {3, 5, 11, 3};
  const std::string without = inspection_page({"runs/moe", "text", even}, Tokenizer::bytes(), "");
  EXPECT_EQ(imbalance(without), "");
  EXPECT_EQ(charts_of(without).size(), 1u) << "every token had one MLP: entropy has nothing to be compared with";
  EXPECT_EQ(without.find(": nan"), std::string::npos);

  const std::string staged = inspection_page({"runs/mode", "text", trace_with_experts(true)}, Tokenizer::bytes(), "");
  EXPECT_EQ(imbalance(staged), "");
  EXPECT_EQ(charts_of(staged).size(), 4u);
}

// Sixty tokens with 0 to 59 MLPs: ten boxes at most, which say their range.
TEST(Charts, EntropyByManyNumbersOfMlpsIsInFewBoxes) {
  Trace trace;
  TracedExperts e{.section = {}, .here = std::vector<uint8_t>(60, 1), .output{}};
  e.sum.expert_rows.resize(64);
  for (int n = 0; n < 60; n++) {
    trace.token.push_back(n);
    trace.entropy.push_back(float(n));
    for (int i = 0; i < n; i++) e.output.push_back(uint8_t(i));
    e.begin.push_back(int64_t(e.output.size()));
  }
  trace.experts.push_back(e);
  const Chart chart = entropy_by_depth(trace);
  EXPECT_EQ(chart.table.rows.size(), 10u);
  EXPECT_EQ(chart.table.rows[0][0], "0 to 5");
  EXPECT_EQ(chart.table.rows[9][0], "54 to 59");
  EXPECT_EQ(set_of(chart.spec, "depths")[0]["p50"], 2.5);
}

// Entropies 2, 1 and 0 at depths 0, 1 and 2 among four tokens.
TEST(Charts, EntropyByDepthHasQuartilesOfEachDepth) {
  Trace trace;
  trace.token = {1, 2, 3, 4};
  trace.entropy = {2, 4, 1, 0};
  trace.layer.push_back({.section = {.index = 1, .block = 1, .routed = true},
                         .capacity = 0.5,
                         .routed = {0, 0, 1, 1},
                         .score{},
                         .routing{}});
  trace.layer.push_back({.section = {.index = 3, .block = 3, .routed = true},
                         .capacity = 0.5,
                         .routed = {0, 0, 0, 1},
                         .score{},
                         .routing{}});
  const Chart chart = entropy_by_depth(trace);
  const Json& rows = chart.spec["data"][0]["values"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["depth"], 0);
  EXPECT_EQ(rows[0]["share"], 0.5);
  EXPECT_EQ(rows[0]["p50"], 3.0);
  EXPECT_EQ(rows[2]["p50"], 0.0);
  ASSERT_EQ(chart.table.rows.size(), 3u);
  EXPECT_EQ(chart.table.rows[1][1], "25.0%");
}

}  // namespace
}  // namespace isobath
