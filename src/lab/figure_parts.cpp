#include "lab/figure_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/units.h"
#include "lab/chart_parts.h"
#include "lab/study_specs.h"

namespace isobath {

using Json = nlohmann::json;

double number(const RecipeSummary& r, const char* key) { return (*r.first)[key]; }
double flops_per_pass(const RecipeSummary& r) { return number(r, "flops_per_token"); }

bool is_dense(const RecipeSummary& r) { return flops_per_pass(r) == number(r, "dense_flops_per_token"); }

std::string scientific(double value) {
  std::string text = fmt::format("{:.3g}", value);
  if (const size_t plus = text.find("e+"); plus != std::string::npos) text.erase(plus + 1, 1);
  return text;
}

std::string variant_of(const RecipeSummary& r) {
  const std::string variant = r.first->value("variant", "");
  return (variant.empty() ? "models" : variant) + (r.text.empty() ? "" : ", " + r.text);
}

std::string budget_suffix(const Recipes& all, const RecipeSummary& r) {
  const double budget = number(r, "budget");
  for (const RecipeSummary& other : all)
    if (number(other, "budget") != budget) return " at " + scientific(budget);
  return "";
}

std::string series_of(const Recipes& all, const RecipeSummary& r) { return variant_of(r) + budget_suffix(all, r); }

std::string row_label(const Recipes& all, const RecipeSummary& r) { return r.label + budget_suffix(all, r); }

std::string tip_of(const RecipeSummary& r) {
  return fmt::format("{}\n{} parameters, {} FLOPs per token\nloss {} ({} seeds)", r.label,
                     with_letter(number(r, "parameters")), with_letter(flops_per_pass(r)), spread_text(r.top_k, 4),
                     r.runs.size());
}

std::string grid_note(const Recipes& all) {
  if (best_of_grid(all).size() == all.size()) return "";
  std::set<std::string> keys;
  for (const RecipeSummary& r : all) {
    const Json grid = r.first->value("grid", Json::object());
    for (const auto& [key, value] : grid.items()) keys.insert(key.substr(key.find('.') + 1));
  }
  return fmt::format(" Of the values that were tried ({}) each model is shown with the one that did best in mean loss.",
                     fmt::join(keys, ", "));
}

namespace {

// Of the longest name in a legend, in pixels: letters of 12 are some 6.3 wide; with its symbol.
double label_width(const Json& series) {
  size_t longest = 1;
  for (const Json& s : series) longest = std::max(longest, s["name"].get_ref<const std::string&>().size());
  return 30 + 6.3 * double(longest);
}

}  // namespace

void SeriesData::name(const std::string& series_name) {
  for (const Json& known : series)
    if (known["name"] == series_name) return;
  series.push_back({{"name", series_name}});
}

void SeriesData::point(const std::string& in, double x, const SeedSpread& y, const std::string& tip) {
  name(in);
  points.push_back({{"series", in}, {"x", x}, {"y", y.mean}, {"low", y.low}, {"high", y.high}, {"tip", tip}});
}

void SeriesData::line(const std::string& in, double x, double y) {
  name(in);
  lines.push_back({{"series", in}, {"x", x}, {"y", y}});
}

Chart SeriesData::chart(const char* x_title, const char* y_title, bool log_x, bool join) {
  std::stable_sort(points.begin(), points.end(), [](const Json& a, const Json& b) { return a["x"] < b["x"]; });
  Chart c;
  c.spec = with_data(kSeries, {{"points", points}, {"lines", lines}, {"optima", optima}, {"series", series}});
  set_signal(c.spec, "x_title", x_title);
  set_signal(c.spec, "y_title", y_title);
  set_signal(c.spec, "join", join);
  set_signal(c.spec, "label_width", label_width(series));
  for (Json& scale : c.spec["scales"])  // Vega warns of a scale over a set without rows
    if (lines.empty() && scale["domain"].contains("fields")) {
      Json& fields = scale["domain"]["fields"];
      fields.erase(fields.size() - 1);
    }
  if (log_x) c.spec["scales"][0]["type"] = "log";
  c.table = std::move(table);
  return c;
}

void DotsData::dot(const std::string& label, const std::string& in, const SeedSpread& x, const std::string& tip) {
  dots.push_back({{"label", label}, {"series", in}, {"x", x.mean}, {"low", x.low}, {"high", x.high}, {"tip", tip}});
}

Chart DotsData::chart(std::initializer_list<const char*> names, const char* x_title, size_t rows) {
  for (const char* name : names) series.push_back({{"name", name}});
  Chart c;
  c.spec = with_data(kDots, {{"dots", dots}, {"series", series}});
  set_signal(c.spec, "rows", rows);
  set_signal(c.spec, "x_title", x_title);
  c.table = std::move(table);
  return c;
}

}  // namespace isobath
