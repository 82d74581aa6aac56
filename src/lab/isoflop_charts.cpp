#include "lab/isoflop_charts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/units.h"
#include "lab/fit.h"

namespace isobath {
namespace {

std::vector<IsoFlopPoint> points_of(const std::vector<const RecipeSummary*>& line) {
  std::vector<IsoFlopPoint> points;
  for (const RecipeSummary* r : line)
    for (const nlohmann::json* run : r->runs) points.push_back({(*run)["parameters"], (*run)["top_k"]["loss"]});
  return points;
}

constexpr double kWide = 1e3;  // times as large, the one end of an interval: the points say nothing
constexpr const char* kTooWide = "too wide to say";

bool too_wide(const Interval& of_size) { return of_size.high > kWide * of_size.low; }

std::string interval_text(const std::optional<Interval>& interval) {
  if (!interval) return "-";
  return too_wide(*interval) ? kTooWide
                             : fmt::format("{} to {}", with_letter(interval->low), with_letter(interval->high));
}

// The same rule for what the best size grows by from the first to the last budget.
std::string exponent_text(const ScalingFit& fit) {
  if (!fit.interval) return "-";
  const auto [first, last] = std::minmax_element(fit.flops.begin(), fit.flops.end());
  const auto growth = [&](double exponent) { return std::pow(*last / *first, exponent); };
  if (too_wide({growth(fit.interval->low), growth(fit.interval->high)})) return kTooWide;
  return fmt::format("{:.3f} to {:.3f}", fit.interval->low, fit.interval->high);
}

// FLOPs per token of a model of so many parameters that lies between two of the line.
double flops_at(const std::vector<const RecipeSummary*>& line, double parameters) {
  size_t i = 1;
  while (i + 1 < line.size() && number(*line[i], "parameters") < parameters) i++;
  const double n0 = number(*line[i - 1], "parameters"), n1 = number(*line[i], "parameters");
  const double f0 = flops_per_pass(*line[i - 1]), f1 = flops_per_pass(*line[i]);
  return f0 * std::pow(f1 / f0, std::log(parameters / n0) / std::log(n1 / n0));
}

// The parabola and its lowest point.
void add_fit(SeriesData& data, const std::string& series, const std::vector<const RecipeSummary*>& line) {
  const auto fit = fit_isoflop(points_of(line));
  if (!fit) return;
  const double low = number(*line.front(), "parameters"), high = number(*line.back(), "parameters");
  for (int i = 0; i <= 60; i++) {
    const double x = low * std::pow(high / low, i / 60.0);
    data.line(series, x, fit->at(x));
  }
  data.table.rows.push_back({variant_of(*line.front()) + ": fit", scientific(number(*line.front(), "budget")), "", "",
                             "", with_letter(fit->best_size) + (fit->inside ? "" : " (outside)"),
                             interval_text(fit->interval), fmt::format("{:.4f}", fit->best_loss)});
  if (!fit->inside) return;
  Interval interval{fit->best_size, fit->best_size};  // an interval that says nothing is no bar
  if (fit->interval && !too_wide(*fit->interval)) interval = *fit->interval;
  data.optima.push_back({{"series", series},
                         {"x", fit->best_size},
                         {"y", fit->best_loss},
                         {"low", std::max(low, interval.low)},
                         {"high", std::min(high, interval.high)},
                         {"tip", "best size " + with_letter(fit->best_size) + ", " + interval_text(fit->interval)}});
}

}  // namespace

std::vector<std::vector<const RecipeSummary*>> lines_of_sizes(const Recipes& all) {
  std::map<std::pair<std::string, double>, std::vector<const RecipeSummary*>> by_name;
  for (const RecipeSummary& r : all) by_name[{variant_of(r), number(r, "budget")}].push_back(&r);
  std::vector<std::vector<const RecipeSummary*>> lines;
  for (auto& [key, line] : by_name) {
    std::set<double> sizes;
    for (const RecipeSummary* r : line) sizes.insert(number(*r, "parameters"));
    if (sizes.size() < 2) continue;
    std::sort(line.begin(), line.end(), [](const RecipeSummary* a, const RecipeSummary* b) {
      return number(*a, "parameters") < number(*b, "parameters");
    });
    lines.push_back(std::move(line));
  }
  return lines;
}

Figure loss_against_parameters(const Recipes& tried) {
  const Recipes all = best_of_grid(tried);
  Figure figure{"loss-parameters",
                "Loss against parameters",
                "Models of one budget, by size. Lines: a parabola in log parameters (Hoffmann et al. "
                "2022, approach 2); diamonds: its lowest point, the best size for the budget, with its 95% interval." +
                    grid_note(tried),
                {}};
  SeriesData data;
  data.table.head = {"model", "budget", "parameters", "loss", "seeds", "best size", "interval", "loss there"};
  for (const auto& line : lines_of_sizes(all)) {
    const std::string series = series_of(all, *line.front());
    for (const RecipeSummary* r : line) {
      data.point(series, number(*r, "parameters"), r->top_k, tip_of(*r));
      data.table.rows.push_back({r->label, scientific(number(*r, "budget")), with_letter(number(*r, "parameters")),
                                 spread_text(r->top_k, 4), std::to_string(r->runs.size()), "", "", ""});
    }
    add_fit(data, series, line);
  }
  figure.chart = data.chart("parameters", "loss, nats per token", true, false);
  return figure;
}

HtmlTable best_sizes_table(const Recipes& tried) {
  const Recipes all = best_of_grid(tried);
  struct Best {
    const RecipeSummary* model;
    IsoFlopFit fit;
    double flops;
  };
  using Budget = std::pair<double, std::string>;  // and the text
  std::map<Budget, std::vector<Best>> budgets;
  for (const auto& line : lines_of_sizes(all)) {
    const RecipeSummary& first = *line.front();
    const auto fit = fit_isoflop(points_of(line));
    if (!fit || !fit->inside) continue;
    auto& bests = budgets[{number(first, "budget"), first.text}];
    bests.insert(is_dense(first) ? bests.begin() : bests.end(), {&first, *fit, flops_at(line, fit->best_size)});
  }
  HtmlTable table{{"budget", "model", "best size", "95% interval", "of dense", "loss there", "over dense",
                   "FLOPs per token", "of dense"},
                  {}};
  for (const auto& [budget, bests] : budgets) {
    const Best* dense = is_dense(*bests.front().model) ? &bests.front() : nullptr;
    for (const Best& best : bests) {
      const bool compared = dense != nullptr && dense != &best;
      const auto times = [](double value, double of) { return fmt::format("{:.2f} times", value / of); };
      table.rows.push_back({scientific(budget.first), variant_of(*best.model), with_letter(best.fit.best_size),
                            interval_text(best.fit.interval),
                            compared ? times(best.fit.best_size, dense->fit.best_size) : "",
                            fmt::format("{:.4f}", best.fit.best_loss),
                            compared ? fmt::format("{:+.4f}", best.fit.best_loss - dense->fit.best_loss) : "",
                            with_letter(best.flops), compared ? times(best.flops, dense->flops) : ""});
    }
  }
  return table;
}

HtmlTable scaling_table(const Recipes& tried) {
  const Recipes all = best_of_grid(tried);
  std::map<std::string, std::vector<BudgetPoints>> points;  // by variant
  for (const auto& line : lines_of_sizes(all))
    points[variant_of(*line.front())].push_back({number(*line.front(), "budget"), points_of(line)});
  HtmlTable table{{"variant", "budgets", "best size grows as FLOPs to the", "95% interval"}, {}};
  for (const auto& [variant, budgets] : points) {
    const auto fit = fit_scaling(budgets);
    if (!fit) continue;
    table.rows.push_back(
        {variant, std::to_string(fit->flops.size()), fmt::format("{:.3f}", fit->exponent), exponent_text(*fit)});
  }
  return table;
}

}  // namespace isobath
