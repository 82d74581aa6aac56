#include "lab/study_charts.h"

#include <algorithm>
#include <map>

#include "base/units.h"
#include "lab/capacity_chart.h"
#include "lab/chart_parts.h"
#include "lab/isoflop_charts.h"
#include "lab/training_memory.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

// Models of several sizes stand on a line per variant, which is of the best of a grid; else its values are what is
// compared.
Figure loss_against_flops(const Recipes& tried) {
  const bool lines = !lines_of_sizes(tried).empty();
  const Recipes all = lines ? best_of_grid(tried) : tried;
  Figure figure{"loss-flops-per-pass",
                "Loss against FLOPs per forward pass",
                "As a multiple of the best dense model's at the same budget: how much work a prediction takes." +
                    (lines ? grid_note(tried) : ""),
                {}};
  SeriesData data;
  data.table.head = {"model", "budget", "FLOPs per pass / best dense", "loss"};
  using Key = std::pair<std::string, double>;  // text, budget
  const auto key_of = [](const RecipeSummary& r) { return Key{r.text, number(r, "budget")}; };
  std::map<Key, const RecipeSummary*> best;
  for (const RecipeSummary& r : all) {
    if (!is_dense(r)) continue;
    const RecipeSummary*& at = best[key_of(r)];
    if (at == nullptr || r.top_k.mean < at->top_k.mean) at = &r;
  }
  for (const RecipeSummary& r : all) {
    const auto dense = best.find(key_of(r));
    if (dense == best.end()) continue;
    const double ratio = flops_per_pass(r) / flops_per_pass(*dense->second);
    data.point(series_of(all, r), ratio, r.top_k, tip_of(r));
    data.table.rows.push_back(
        {r.label, scientific(number(r, "budget")), fmt::format("{:.3f}", ratio), spread_text(r.top_k, 4)});
  }
  figure.chart =
      data.chart("FLOPs per forward pass / those of the best dense model", "loss, nats per token", true, lines);
  set_signal(figure.chart.spec, "x_format", ".2f");
  return figure;
}

constexpr size_t kMostCurves = 12;  // as many colours

// Models whose curves a figure has room for, in their order: of too many those that did best of a grid, and the first.
Recipes with_room(const Recipes& all) {
  Recipes shown = all.size() > kMostCurves ? best_of_grid(all) : all;
  if (shown.size() > kMostCurves) shown.resize(kMostCurves);
  return shown;
}

std::string room_note(const Recipes& shown, const Recipes& all) {
  return shown.size() == all.size()
             ? ""
             : fmt::format(" {} of {} models are shown.", shown.size(), all.size()) + grid_note(all);
}

Figure learning_curves_of(const Recipes& all) {
  const Recipes shown = with_room(all);
  Figure figure{"learning-curves",
                "Learning curves",
                "Validation loss by top-k against training FLOPs, mean of the seeds. The evaluation at the end is left "
                "out: it is of the whole text, those during a run may be of a part." +
                    room_note(shown, all),
                {}};
  SeriesData data;
  data.table.head = {"model", "training FLOPs", "validation loss"};
  for (const RecipeSummary& r : shown) {
    const std::string series = row_label(all, r);
    const Json& first = (*r.first)["curve"]["validation"];
    const size_t points = first.size() > 1 ? first.size() - 1 : first.size();
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

constexpr size_t kAgreement = 3;  // of a point of the curve (lab/record.h)

bool tells_agreement(const RecipeSummary& r) {
  const Json& curve = (*r.first)["curve"]["validation"];
  return std::any_of(curve.begin(), curve.end(), [](const Json& point) { return point.size() > kAgreement; });
}

Figure agreement_over_training(const Recipes& all) {
  Recipes routed = all;
  std::erase_if(routed, [](const RecipeSummary& r) { return !tells_agreement(r); });
  const Recipes shown = with_room(routed);
  Figure figure{"agreement",
                "Agreement of the causal rule with top-k over training",
                "Share of tokens for which the causal rule decides as top-k does, mean over routed blocks and seeds. A "
                "rule that lets nothing through agrees on all but the capacity." +
                    room_note(shown, routed),
                {}};
  SeriesData data;
  data.table.head = {"model", "training FLOPs", "agreement"};
  for (const RecipeSummary& r : shown) {
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

Figure step_times(const Recipes& all) {
  Figure figure{"step-time",
                "Measured time against counted FLOPs",
                "Microseconds of training per token against counted forward FLOPs per token: models on one straight "
                "line through zero turn skipped work into saved time. Runs that shared their machine say less.",
                {}};
  SeriesData data;
  data.table.head = {"model", "FLOPs per token", "step ms", "tokens/s", "share of peak", "seconds of steps"};
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
                               fmt::format("{:.1f}", training_seconds(*r.first))});
  }
  figure.chart = data.chart("FLOPs per token, forward", "microseconds per token, training", false, false);
  set_signal(figure.chart.spec, "y_format", ".1f");
  return figure;
}

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

Json* member_named(Json& list, const char* name) {
  for (Json& member : list)
    if (member["name"] == name) return &member;
  return nullptr;
}

// A series of points has one colour on the whole page, as long as there are colours for all of them.
void color_alike(std::vector<Figure>& figures) {
  std::vector<std::string> names;
  const auto place_of = [&](const Json& series) {
    const std::string name = series["name"];
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return size_t(found - names.begin());
    names.push_back(name);
    return names.size() - 1;
  };
  std::vector<std::pair<Json*, Json>> ranges;  // a figure's, and the new one
  for (Figure& figure : figures) {
    if (member_named(figure.chart.spec["data"], "points") == nullptr) continue;
    Json& range = (*member_named(figure.chart.spec["scales"], "color"))["range"];
    Json colors = Json::array();
    for (const Json& series : (*member_named(figure.chart.spec["data"], "series"))["values"]) {
      const size_t place = place_of(series);
      if (place >= range.size()) return;
      colors.push_back(range[place]);
    }
    ranges.emplace_back(&range, std::move(colors));
  }
  for (auto& [range, colors] : ranges) *range = std::move(colors);
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
  add(loss_against_capacity(all));
  add(learning_curves_of(all));
  add(agreement_over_training(all));
  add(step_times(all));
  add(training_memory(all));
  color_alike(figures);
  return figures;
}

}  // namespace isobath
