// What the figures of studies are made with: how models are named in them, and their rows as they are gathered.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/charts.h"
#include "lab/summary.h"

namespace isobath {

using Recipes = std::vector<RecipeSummary>;

struct Figure {
  std::string name;  // of its files
  std::string title, note;
  Chart chart;
};

double number(const RecipeSummary& r, const char* key);  // of its records
double flops_per_pass(const RecipeSummary& r);           // of the context: a constant times FLOPs per token
bool is_dense(const RecipeSummary& r);
std::string scientific(double value);  // "3e12"

// Of a line of models: the variant, the text where the records are of several, and the budget where there are several.
std::string variant_of(const RecipeSummary& r);
std::string series_of(const Recipes& all, const RecipeSummary& r);
std::string budget_suffix(const Recipes& all, const RecipeSummary& r);  // " at 3e12", or nothing
std::string row_label(const Recipes& all, const RecipeSummary& r);      // of one model
std::string tip_of(const RecipeSummary& r);

// What a figure of best_of_grid(all) says of what it leaves out; empty where that is nothing.
std::string grid_note(const Recipes& all);

// Points and lines of a chart with series (kSeries), gathered.
struct SeriesData {
  nlohmann::json points = nlohmann::json::array(), lines = nlohmann::json::array(), optima = nlohmann::json::array(),
                 series = nlohmann::json::array();
  HtmlTable table;

  void name(const std::string& series_name);
  void point(const std::string& in, double x, const SeedSpread& y, const std::string& tip);
  void line(const std::string& in, double x, double y);
  Chart chart(const char* x_title, const char* y_title, bool log_x, bool join);
};

// A row per model (kDots).
struct DotsData {
  nlohmann::json dots = nlohmann::json::array(), series = nlohmann::json::array();
  HtmlTable table;

  void dot(const std::string& label, const std::string& in, const SeedSpread& x, const std::string& tip);
  Chart chart(std::initializer_list<const char*> names, const char* x_title, size_t rows);
};

}  // namespace isobath
