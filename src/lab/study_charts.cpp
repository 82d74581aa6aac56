#include "lab/study_charts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/units.h"
#include "lab/chart_parts.h"
#include "lab/fit.h"
#include "lab/study_specs.h"

namespace isobath {
namespace {

using Json = nlohmann::json;
using Recipes = std::vector<RecipeSummary>;

double number(const RecipeSummary& r, const char* key) { return (*r.first)[key]; }
double flops_per_pass(const RecipeSummary& r) {  // of the context: a constant times FLOPs per token
  return number(r, "flops_per_token");
}
std::string scientific(double value) {
  std::string text = fmt::format("{:.3g}", value);
  if (const size_t plus = text.find("e+"); plus != std::string::npos) text.erase(plus + 1, 1);
  return text;
}
std::string variant_of(const RecipeSummary& r) {
  const std::string variant = r.first->value("variant", "");
  return variant.empty() ? "models" : variant;
}
// Of a line of models: the variant, and the budget where the study has several.
std::string series_of(const Recipes& all, const RecipeSummary& r) {
  std::set<double> budgets;
  for (const RecipeSummary& other : all) budgets.insert(number(other, "budget"));
  return variant_of(r) + (budgets.size() > 1 ? " at " + scientific(number(r, "budget")) : "");
}

std::string row_label(const Recipes& all, const RecipeSummary& r) {
  return r.label + (series_of(all, r) == variant_of(r) ? "" : " at " + scientific(number(r, "budget")));
}

// Points and lines of a chart with series, gathered.
struct SeriesData {
  Json points = Json::array(), lines = Json::array(), optima = Json::array(), series = Json::array();
  HtmlTable table;

  void name(const std::string& series_name) {
    for (const Json& known : series)
      if (known["name"] == series_name) return;
    series.push_back({{"name", series_name}});
  }
  void point(const std::string& in, double x, const SeedSpread& y, const std::string& tip) {
    name(in);
    points.push_back({{"series", in}, {"x", x}, {"y", y.mean}, {"low", y.low}, {"high", y.high}, {"tip", tip}});
  }
  void line(const std::string& in, double x, double y) {
    name(in);
    lines.push_back({{"series", in}, {"x", x}, {"y", y}});
  }
  Chart chart(const char* x_title, const char* y_title, bool log_x, bool join) {
    std::stable_sort(points.begin(), points.end(), [](const Json& a, const Json& b) { return a["x"] < b["x"]; });
    Chart c;
    c.spec = with_data(kSeries, {{"points", points}, {"lines", lines}, {"optima", optima}, {"series", series}});
    set_signal(c.spec, "x_title", x_title);
    set_signal(c.spec, "y_title", y_title);
    set_signal(c.spec, "join", join);
    for (Json& scale : c.spec["scales"])  // Vega warns of a scale over a set without rows
      if (lines.empty() && scale["domain"].contains("fields")) {
        Json& fields = scale["domain"]["fields"];
        fields.erase(fields.size() - 1);
      }
    if (log_x) c.spec["scales"][0]["type"] = "log";
    c.table = std::move(table);
    return c;
  }
};

std::string tip_of(const RecipeSummary& r) {
  return fmt::format("{}\n{} parameters, {} FLOPs per token\nloss {} ({} seeds)", r.label,
                     with_letter(number(r, "parameters")), with_letter(flops_per_pass(r)), spread_text(r.top_k, 4),
                     r.runs.size());
}

// Models of one variant at one budget, by size; those of one size alone make no line.
std::map<std::pair<std::string, double>, std::vector<const RecipeSummary*>> lines_of_sizes(const Recipes& all) {
  std::map<std::pair<std::string, double>, std::vector<const RecipeSummary*>> lines;
  for (const RecipeSummary& r : all) lines[{variant_of(r), number(r, "budget")}].push_back(&r);
  std::erase_if(lines, [](const auto& line) {
    std::set<double> sizes;
    for (const RecipeSummary* r : line.second) sizes.insert(number(*r, "parameters"));
    return sizes.size() < 2;
  });
  for (auto& [key, line] : lines)
    std::sort(line.begin(), line.end(), [](const RecipeSummary* a, const RecipeSummary* b) {
      return number(*a, "parameters") < number(*b, "parameters");
    });
  return lines;
}

std::vector<IsoFlopPoint> points_of(const std::vector<const RecipeSummary*>& line) {
  std::vector<IsoFlopPoint> points;
  for (const RecipeSummary* r : line)
    for (const Json* run : r->runs) points.push_back({(*run)["parameters"], (*run)["top_k"]["loss"]});
  return points;
}

std::string interval_text(const std::optional<Interval>& interval) {
  constexpr double kWide = 1e3;  // times as large: the points say nothing
  if (interval && interval->high > kWide * interval->low) return "too wide to say";
  return interval ? fmt::format("{} to {}", with_letter(interval->low), with_letter(interval->high)) : "-";
}

Figure loss_against_parameters(const Recipes& all) {
  Figure figure{"loss-parameters",
                "Loss against parameters",
                "Models of one budget, by size. Lines: a parabola in log parameters (Hoffmann et al. "
                "2022, approach 2); diamonds: its lowest point, the best size for the budget, with its 95% interval.",
                {}};
  SeriesData data;
  data.table.head = {"model", "budget", "parameters", "loss", "seeds", "best size", "interval", "loss there"};
  for (const auto& [key, line] : lines_of_sizes(all)) {
    const std::string series = series_of(all, *line.front());
    const auto fit = fit_isoflop(points_of(line));
    for (const RecipeSummary* r : line) {
      data.point(series, number(*r, "parameters"), r->top_k, tip_of(*r));
      data.table.rows.push_back({r->label, scientific(key.second), with_letter(number(*r, "parameters")),
                                 spread_text(r->top_k, 4), std::to_string(r->runs.size()), "", "", ""});
    }
    if (!fit) continue;
    const double low = number(*line.front(), "parameters"), high = number(*line.back(), "parameters");
    for (int i = 0; i <= 60; i++) {
      const double x = low * std::pow(high / low, i / 60.0);
      data.line(series, x, fit->at(x));
    }
    data.table.rows.push_back({variant_of(*line.front()) + ": fit", scientific(key.second), "", "", "",
                               with_letter(fit->best_size) + (fit->inside ? "" : " (outside)"),
                               interval_text(fit->interval), fmt::format("{:.4f}", fit->best_loss)});
    if (!fit->inside) continue;
    const Interval interval = fit->interval.value_or(Interval{fit->best_size, fit->best_size});
    data.optima.push_back({{"series", series},
                           {"x", fit->best_size},
                           {"y", fit->best_loss},
                           {"low", std::max(low, interval.low)},
                           {"high", std::min(high, interval.high)},
                           {"tip", "best size " + with_letter(fit->best_size) + ", " + interval_text(fit->interval)}});
  }
  figure.chart = data.chart("parameters", "loss, nats per token", true, false);
  return figure;
}

Figure loss_against_flops(const Recipes& all) {
  Figure figure{"loss-flops-per-pass",
                "Loss against FLOPs per forward pass",
                "As a multiple of the best dense model's at the same budget: how much work a prediction takes.",
                {}};
  SeriesData data;
  data.table.head = {"model", "budget", "FLOPs per pass / best dense", "loss"};
  std::map<double, const RecipeSummary*> best;
  for (const RecipeSummary& r : all) {
    if (flops_per_pass(r) != number(r, "dense_flops_per_token")) continue;
    const RecipeSummary*& at = best[number(r, "budget")];
    if (at == nullptr || r.top_k.mean < at->top_k.mean) at = &r;
  }
  for (const RecipeSummary& r : all) {
    const auto dense = best.find(number(r, "budget"));
    if (dense == best.end()) continue;
    const double ratio = flops_per_pass(r) / flops_per_pass(*dense->second);
    data.point(series_of(all, r), ratio, r.top_k, tip_of(r));
    data.table.rows.push_back(
        {r.label, scientific(number(r, "budget")), fmt::format("{:.3f}", ratio), spread_text(r.top_k, 4)});
  }
  figure.chart = data.chart("FLOPs per forward pass / those of the best dense model", "loss, nats per token", true,
                            !lines_of_sizes(all).empty());
  set_signal(figure.chart.spec, "x_format", ".2f");
  return figure;
}

// Whether evaluations during the run read fewer windows than the one at its end.
bool read_parts(const Json& record) {
  const int64_t part = record["changed"].value("train", Json::object()).value("eval_windows", int64_t(0));
  return part > 0 && part < record["top_k"]["windows"];
}

Figure learning_curves_of(const Recipes& all) {
  constexpr size_t kMost = 12;
  Figure figure{"learning-curves",
                "Learning curves",
                fmt::format("Validation loss by top-k against training FLOPs, mean of the seeds{}. Where evaluations "
                            "during a run read a part of the text, its last one, of the whole, is left out.",
                            all.size() > kMost ? fmt::format("; the first {} of {} models", kMost, all.size()) : ""),
                {}};
  SeriesData data;
  data.table.head = {"model", "training FLOPs", "validation loss"};
  for (size_t i = 0; i < std::min(kMost, all.size()); i++) {
    const RecipeSummary& r = all[i];
    const std::string series = row_label(all, r);
    const Json& first = (*r.first)["curve"]["validation"];
    const size_t points = first.size() - (first.size() > 1 && read_parts(*r.first) ? 1 : 0);
    for (size_t p = 0; p < points; p++) {
      std::vector<double> losses;
      for (const Json* run : r.runs)
        if (const Json& curve = (*run)["curve"]["validation"]; p < curve.size()) losses.push_back(curve[p][1]);
      const SeedSpread loss = seed_spread(losses);
      data.point(series, first[p][0], loss, series + "\nloss " + spread_text(loss, 4));
      data.table.rows.push_back({series, scientific(first[p][0]), spread_text(loss, 4)});
    }
  }
  figure.chart = data.chart("training FLOPs", "validation loss, nats per token", false, true);
  set_signal(figure.chart.spec, "x_format", ".1e");
  return figure;
}

Figure agreement_over_training(const Recipes& all) {
  Figure figure{"agreement",
                "Agreement of the causal rule with top-k over training",
                "Share of tokens for which the causal rule decides as top-k does, mean over routed blocks and seeds. A "
                "rule that lets nothing through agrees on all but the capacity.",
                {}};
  SeriesData data;
  data.table.head = {"model", "training FLOPs", "agreement"};
  constexpr size_t kAgreement = 3;  // of a point of the curve (lab/record.h)
  for (const RecipeSummary& r : all) {
    const std::string series = row_label(all, r);
    const Json& first = (*r.first)["curve"]["validation"];
    for (size_t p = 0; p < first.size(); p++) {
      std::vector<double> values;
      for (const Json* run : r.runs)
        if (const Json& curve = (*run)["curve"]["validation"]; p < curve.size() && curve[p].size() > kAgreement)
          values.push_back(curve[p][kAgreement]);
      if (values.empty()) continue;
      const SeedSpread agreement = seed_spread(values);
      data.point(series, first[p][0], agreement, series + "\nagreement " + spread_text(agreement, 3));
      data.table.rows.push_back({series, scientific(first[p][0]), spread_text(agreement, 4)});
    }
  }
  figure.chart = data.chart("training FLOPs", "agreement", false, true);
  set_signal(figure.chart.spec, "x_format", ".1e");
  set_signal(figure.chart.spec, "y_format", ".2f");
  return figure;
}

// Capacity, and how often a block is routed: from what the runs changed, wherever the study says it.
Figure loss_against_capacity(const Recipes& all) {
  Figure figure{"capacity",
                "Loss against capacity and frequency",
                "Routed models by the share of tokens that a routed block takes; a line per frequency and router. "
                "`random` is the control: routing that knows nothing of the text.",
                {}};
  SeriesData data;
  data.table.head = {"router, every", "capacity", "loss"};
  for (const RecipeSummary& r : all) {
    const Json routing = (*r.first)["changed"].value("routing", Json::object());
    const Json capacity = routing.value("capacity", Json::array({0.125}));
    if (flops_per_pass(r) == number(r, "dense_flops_per_token") || capacity.size() != 1) continue;
    const std::string series =
        fmt::format("{}, every {}{}", routing.value("router", "learned"), routing.value("every", 2),
                    series_of(all, r) == variant_of(r) ? "" : " at " + scientific(number(r, "budget")));
    data.point(series, capacity[0], r.top_k, tip_of(r));
    data.table.rows.push_back({series, capacity[0].dump(), spread_text(r.top_k, 4)});
  }
  figure.chart = data.chart("capacity", "loss, nats per token", true, true);
  set_signal(figure.chart.spec, "x_format", ".3~f");
  return figure;
}

Figure step_times(const Recipes& all) {
  Figure figure{"step-time",
                "Measured time against counted FLOPs",
                "Microseconds of training per token against counted forward FLOPs per token: models on one straight "
                "line through zero turn skipped work into saved time. Runs that shared their machine say less.",
                {}};
  SeriesData data;
  data.table.head = {"model", "FLOPs per token", "step ms", "tokens/s", "share of peak", "seconds"};
  for (const RecipeSummary& r : all) {
    std::vector<double> time;
    for (const Json* run : r.runs) time.push_back(1e6 / (*run)["measured"]["tokens_per_s"].get<double>());
    const SeedSpread spread = seed_spread(time);
    data.point(series_of(all, r), flops_per_pass(r), spread,
               fmt::format("{}\n{} microseconds per token", r.label, spread_text(spread, 2)));
    const Json& m = (*r.first)["measured"];
    data.table.rows.push_back({r.label, with_letter(flops_per_pass(r)),
                               fmt::format("{:.1f}", m["step_ms"].get<double>()), with_letter(m["tokens_per_s"]),
                               fmt::format("{:.1f}%", 100 * m["peak_share"].get<double>()),
                               fmt::format("{:.1f}", m["seconds"].get<double>())});
  }
  figure.chart = data.chart("FLOPs per token, forward", "microseconds per token, training", false, false);
  set_signal(figure.chart.spec, "y_format", ".1f");
  return figure;
}

struct DotsData {
  Json dots = Json::array(), series = Json::array();
  HtmlTable table;
  void dot(const std::string& label, const std::string& in, const SeedSpread& x, const std::string& tip) {
    dots.push_back({{"label", label}, {"series", in}, {"x", x.mean}, {"low", x.low}, {"high", x.high}, {"tip", tip}});
  }
  Chart chart(std::initializer_list<const char*> names, const char* x_title, size_t rows) {
    for (const char* name : names) series.push_back({{"name", name}});
    Chart c;
    c.spec = with_data(kDots, {{"dots", dots}, {"series", series}});
    set_signal(c.spec, "rows", rows);
    set_signal(c.spec, "x_title", x_title);
    c.table = std::move(table);
    return c;
  }
};

Figure top_k_and_causal(const Recipes& all) {
  Figure figure{"top-k-causal",
                "Top-k and causal evaluation",
                "Training chooses by top-k over the sequence, generation by each model's causal rule. Bars: lowest to "
                "highest seed.",
                {}};
  DotsData data;
  data.table.head = {"model", "loss (top-k)", "loss (causal)", "difference", "seeds"};
  Recipes sorted = all;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const RecipeSummary& a, const RecipeSummary& b) { return a.top_k.mean < b.top_k.mean; });
  for (const RecipeSummary& r : sorted) {
    const std::string label = row_label(all, r);
    data.dot(label, "top-k", r.top_k, fmt::format("{}, top-k: {}", label, spread_text(r.top_k, 4)));
    const bool causal = r.causal.count > 0;
    if (causal) data.dot(label, "causal", r.causal, fmt::format("{}, causal: {}", label, spread_text(r.causal, 4)));
    data.table.rows.push_back({label, spread_text(r.top_k, 4), spread_text(r.causal, 4),
                               causal ? fmt::format("{:+.4f}", r.causal.mean - r.top_k.mean) : "-",
                               std::to_string(r.runs.size())});
  }
  figure.chart = data.chart({"top-k", "causal"}, "loss, nats per token", sorted.size());
  return figure;
}

Figure memory_held(const Recipes& all) {
  Figure figure{"memory", "Memory", "The most that a training process held at once, text and program included.", {}};
  DotsData data;
  data.table.head = {"model", "memory"};
  for (const RecipeSummary& r : all) {
    std::vector<double> megabytes;
    for (const Json* run : r.runs) megabytes.push_back((*run)["measured"]["memory_bytes"].get<double>() / 1e6);
    const SeedSpread spread = seed_spread(megabytes);
    data.dot(row_label(all, r), "training", spread, fmt::format("{}: {} MB", r.label, spread_text(spread, 1)));
    data.table.rows.push_back({row_label(all, r), spread_text(spread, 1) + " MB"});
  }
  figure.chart = data.chart({"training"}, "MB", all.size());
  set_signal(figure.chart.spec, "x_format", ".0f");
  return figure;
}

}  // namespace

std::vector<Figure> study_figures(const Recipes& all) {
  std::vector<Figure> figures;
  const auto add = [&](Figure figure) {
    if (!figure.chart.table.rows.empty()) figures.push_back(std::move(figure));
  };
  add(top_k_and_causal(all));
  add(loss_against_parameters(all));
  add(loss_against_flops(all));
  std::set<std::string> capacities;
  for (const RecipeSummary& r : all)
    capacities.insert((*r.first)["changed"].value("routing", Json::object()).value("capacity", Json()).dump());
  capacities.erase("null");
  if (capacities.size() > 1) add(loss_against_capacity(all));
  add(learning_curves_of(all));
  add(agreement_over_training(all));
  add(step_times(all));
  add(memory_held(all));
  return figures;
}

}  // namespace isobath
