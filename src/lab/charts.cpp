#include "lab/charts.h"

#include <algorithm>
#include <cmath>

#include "lab/chart_parts.h"
#include "lab/chart_specs.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

// Means of neighbouring points, so that a long run is a line of some hundred.
Json thinned(const Twin& twin) {
  const std::vector<CurvePoint>& all = twin.training;
  const size_t points = std::min<size_t>(200, all.size());
  Json rows = Json::array();
  for (size_t p = 0; p < points; p++) {
    const size_t begin = all.size() * p / points, end = all.size() * (p + 1) / points;
    double loss = 0;
    for (size_t i = begin; i < end; i++) loss += all[i].loss;
    rows.push_back({{"twin", twin.name}, {"flops", all[end - 1].flops}, {"loss", loss / double(end - begin)}});
  }
  return rows;
}

}  // namespace

Chart learning_curves(const Comparison& c) {
  Chart chart;
  Json training = Json::array(), validation = Json::array();
  double low = c.baseline.trigram, high = c.baseline.trigram;
  chart.table.head = {"model", "training FLOPs", "validation loss (top-k)"};
  for (const Twin* twin : {&c.dense, &c.mod}) {
    for (Json& row : thinned(*twin)) training.push_back(std::move(row));
    for (const CurvePoint& point : twin->validation) {
      validation.push_back({{"twin", twin->name}, {"flops", point.flops}, {"loss", point.loss}});
      low = std::min(low, point.loss);
      high = std::max(high, point.loss);
      chart.table.rows.push_back({twin->name, fmt::format("{:.3e}", point.flops), fmt::format("{:.4f}", point.loss)});
    }
  }
  Json lines = Json::array();
  lines.push_back({{"name", fmt::format("byte trigram {:.3f}", c.baseline.trigram)}, {"loss", c.baseline.trigram}});
  chart.spec = with_data(kLearningCurves, {{"training", training}, {"validation", validation}, {"baseline", lines}});
  set_signal(chart.spec, "low", low - 0.06);
  set_signal(chart.spec, "high", std::min(high + 0.1, std::max(low + 0.6, c.baseline.unigram)));
  return chart;
}

Chart routing_shares(const Trace& trace) {
  Chart chart;
  Json rows = Json::array();
  const bool causal = trace.by == SelectBy::kCausal;
  chart.table.head = {"block",
                      "capacity C",
                      causal ? "share (causal)" : "share (top-k)",
                      "accuracy",
                      "precision",
                      "recall",
                      "always skip would score"};
  for (const TracedLayer& layer : trace.layer) {
    const Agreement& a = layer.routing.agreement;
    rows.push_back({{"block", layer.section.name()}, {"share", layer.share()}, {"C", layer.capacity}});
    const bool ruled = a.rows > 0;
    const auto cell = [&](double value) { return ruled ? percent(value) : std::string("-"); };
    chart.table.rows.push_back({layer.section.name(), percent(layer.capacity), percent(layer.share()),
                                cell(a.accuracy()), cell(a.precision()), cell(a.recall()), cell(a.base_rate())});
  }
  chart.spec = with_data(kRoutingShares, {{"shares", rows}});
  set_signal(chart.spec, "rows", trace.layer.size());
  return chart;
}

Chart router_weights(const Trace& trace) {
  constexpr int64_t kBins = 60;
  Chart chart;
  Json rows = Json::array();
  chart.table.head = {"block", "5%", "median", "95%", "border", "share above it"};
  for (const TracedLayer& layer : trace.layer) {
    std::vector<float> over = layer.score;  // the border is 0 in every row of the chart
    for (float& r : over) r -= float(layer.border);
    const Histogram h = histogram(over, kBins);
    std::vector<int64_t> routed(h.count.size(), 0);
    double above = 0;
    for (size_t n = 0; n < over.size(); n++) {
      if (layer.routed[n]) routed[h.bin_of(double(over[n]))]++;
      above += over[n] > 0;
    }
    const double all = double(std::max<size_t>(1, layer.score.size()));
    for (size_t bin = 0; bin < h.count.size(); bin++) {
      if (h.count[bin] == 0) continue;
      const Json place{{"block", layer.section.name()}, {"low", h.edge_of(bin)}, {"high", h.edge_of(bin + 1)}};
      Json through = place, skipped = place;
      through.update({{"choice", "went through"}, {"from", 0}, {"to", double(routed[bin]) / all}});
      skipped.update({{"choice", "skipped"}, {"from", double(routed[bin]) / all}, {"to", double(h.count[bin]) / all}});
      rows.push_back(through);
      rows.push_back(skipped);
    }
    const std::vector<double> scores(layer.score.begin(), layer.score.end());
    chart.table.rows.push_back({layer.section.name(), fmt::format("{:.3f}", quantile(scores, 0.05)),
                                fmt::format("{:.3f}", quantile(scores, 0.5)),
                                fmt::format("{:.3f}", quantile(scores, 0.95)), fmt::format("{:.3f}", layer.border),
                                percent(above / all)});
  }
  chart.spec = with_data(kRouterWeights, {{"bins", rows}});
  set_signal(chart.spec, "rows", trace.layer.size());
  return chart;
}

Chart entropy_by_depth(const Trace& trace) {
  constexpr int64_t kBoxes = 10;
  Chart chart;
  Json rows = Json::array();
  const bool mlps = trace.counts_mlps();
  chart.table.head = {mlps ? "MLPs" : "routed blocks passed", "share of tokens", "entropy: lower quartile", "median",
                      "upper quartile"};
  const int64_t least = trace.shallowest(), more = trace.deepest() - least;
  const int64_t step = mlps ? 1 + more / kBoxes : 1;  // depths of a box
  std::vector<std::vector<double>> entropy(size_t(more / step + 1));
  for (int64_t n = 0; n < trace.tokens(); n++)
    entropy[size_t((trace.depth(n) - least) / step)].push_back(double(trace.entropy[size_t(n)]));
  for (size_t d = 0; d < entropy.size(); d++) {
    if (entropy[d].empty()) continue;
    const int64_t first = least + int64_t(d) * step;
    const std::string depths = step == 1 ? std::to_string(first) : fmt::format("{} to {}", first, first + step - 1);
    const double share = double(entropy[d].size()) / double(trace.tokens());
    const auto at = [&](double p) { return quantile(entropy[d], p); };
    rows.push_back({{"depth", step == 1 ? Json(first) : Json(depths)},
                    {"share", share},
                    {"p5", at(0.05)},
                    {"p25", at(0.25)},
                    {"p50", at(0.5)},
                    {"p75", at(0.75)},
                    {"p95", at(0.95)}});
    chart.table.rows.push_back({depths, percent(share), fmt::format("{:.3f}", at(0.25)), fmt::format("{:.3f}", at(0.5)),
                                fmt::format("{:.3f}", at(0.75))});
  }
  chart.spec = with_data(kEntropyByDepth, {{"depths", rows}});
  set_signal(chart.spec, "counted", mlps ? "MLPs" : "routed blocks");
  set_signal(chart.spec, "counted_of", mlps ? " that ran for the token" : " that the token went through");
  return chart;
}

Chart token_map(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens) {
  Chart chart;
  Json rows = Json::array(), cells = Json::array(), letters = Json::array();
  const int64_t count = std::min(tokens, trace.tokens());
  const std::vector<std::string> text = token_labels(trace, tokenizer, count);
  for (int64_t n = 0; n < count; n++) letters.push_back({{"token", n}, {"text", text[size_t(n)]}});
  size_t next = 0;
  for (const Section& section : trace.sections) {
    const TracedLayer* layer = section.routed ? &trace.layer[next++] : nullptr;
    const std::string label = section.label();
    rows.push_back({{"block", label}});
    std::string run;
    for (int64_t n = 0; n < count; n++) {
      const bool through = layer == nullptr || layer->routed[size_t(n)];
      run += through ? '#' : '.';
      if (through)
        cells.push_back({{"token", n}, {"block", label}, {"dense", layer == nullptr}, {"text", text[size_t(n)]}});
    }
    chart.table.rows.push_back({section.name() + (layer == nullptr ? " (dense)" : ""), run});
  }
  chart.table.head = {"block", "tokens: # went through, . skipped"};
  chart.spec = with_data(kTokenMap, {{"rows", rows}, {"cells", cells}, {"letters", letters}});
  set_signal(chart.spec, "tokens", count);
  set_signal(chart.spec, "blocks", trace.sections.size());
  return chart;
}

Chart scan_chart(const ScanAxis& axis) {
  Chart chart;
  Json shares = Json::array(), ratios = Json::array();
  double least = 1, most = 0, low = 1, high = 1;
  for (const ScanPoint& p : axis.points) {
    const auto add = [&](Json& rows, const char* twin, const Spread& s, double unit) {
      rows.push_back({{"twin", twin},
                      {"value", p.value},
                      {"detail", p.detail},
                      {"low", s.low / unit},
                      {"median", s.median / unit},
                      {"high", s.high / unit},
                      {"limit", p.limit}});
    };
    add(shares, "dense", p.dense_share, 1);
    add(shares, "MoD", p.mod_share, 1);
    add(ratios, "MoD", p.time_ratio, p.flop_ratio);
    least = std::min({least, p.dense_share.low, p.mod_share.low});
    most = std::max({most, p.dense_share.high, p.mod_share.high});
    low = std::min(low, p.time_ratio.low / p.flop_ratio);
    high = std::max({high, p.time_ratio.high / p.flop_ratio, p.limit});
  }
  chart.spec = with_data(kScan, {{"shares", shares}, {"ratios", ratios}});
  set_signal(chart.spec, "x_title", axis.name);
  set_signal(chart.spec, "least_share", std::floor(20 * least) / 20);
  set_signal(chart.spec, "most_share", std::ceil(20 * most) / 20);
  set_signal(chart.spec, "low", low - 0.02);
  set_signal(chart.spec, "high", high + 0.02);
  chart.table = scan_table(axis);
  return chart;
}

}  // namespace isobath
