// Figures of studies, from records whose answer is known.
#include "lab/study_charts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/units.h"
#include "lab/isoflop_charts.h"
#include "lab/study.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

struct Made {
  std::string variant = "", size = "";
  double parameters = 1e5, budget = 1e12, loss = 2;
  Json changed = Json::object(), grid = Json::object();
  int seed = 1;
};

Json record(const Made& m) {
  Json recipe{m.variant, m.size, m.budget, m.changed, m.grid};
  return {{"variant", m.variant},
          {"size", m.size},
          {"recipe", recipe.dump()},
          {"grid", m.grid},
          {"changed", m.changed},
          {"seed", m.seed},
          {"corpus", "aaaabbbb"},
          {"budget", m.budget},
          {"parameters", m.parameters},
          {"flops_per_token", m.variant == "dense" ? 20.0 : 12.0},
          {"dense_flops_per_token", 20.0},
          {"tokens", 100},
          {"steps", 100},
          {"top_k", {{"loss", m.loss}, {"layers", Json::array()}, {"windows", 10}}},
          {"curve", {{"validation", Json::array({Json::array({m.budget, m.loss})})}}},
          {"measured",
           {{"seconds", 600.0}, {"step_ms", 20.0}, {"tokens_per_s", 1e4}, {"peak_share", 0.5}, {"threads", 1}}}};
}

const Figure& figure(const std::vector<Figure>& figures, const std::string& name) {
  for (const Figure& f : figures)
    if (f.name == name) return f;
  throw std::out_of_range(name);
}

const Json& set_of(const Figure& f, const char* name) {
  for (const Json& set : f.chart.spec["data"])
    if (set["name"] == name) return set["values"];
  throw std::out_of_range(name);
}

const char* const kSizes[] = {"s", "m", "l", "xl", "xxl"};
constexpr double kRates[] = {0.002, 0.004, 0.008, 0.016};

// Five sizes at two budgets, each at four learning rates. The best rate falls with the size; at it the loss is a
// parabola in log size, whose lowest point grows with the square root of the budget.
std::vector<Json> grid_of_rates() {
  std::vector<Json> records;
  for (const double budget : {1e12, 4e12})
    for (int s = 0; s < 5; s++)
      for (int r = 0; r < 4; r++)
        for (const char* variant : {"dense", "joint"}) {
          const double size = 5e4 * std::pow(2, s), best = std::sqrt(budget / 1e12) * (*variant == 'd' ? 1.5e5 : 2e5);
          const double loss = 2 + 0.05 * std::pow(std::log(size / best), 2) + 0.3 * std::abs(r - (3 - s * 3 / 4));
          records.push_back(record({.variant = variant,
                                    .size = kSizes[s],
                                    .parameters = size,
                                    .budget = budget,
                                    .loss = loss,
                                    .changed = {{"train", {{"learning_rate", kRates[r]}}}},
                                    .grid = {{"train.learning_rate", kRates[r]}}}));
        }
  return records;
}

TEST(StudyFigures, CurvesOfSizesTakeTheBestOfAGrid) {
  std::vector<Json> records = grid_of_rates();
  Json again = records[6];  // dense, s, the best rate
  again["seed"] = 2;
  again["top_k"]["loss"] = again["top_k"]["loss"].get<double>() + 0.01;
  records.push_back(again);
  const Recipes recipes = summarize(records);
  const Figure f = loss_against_parameters(recipes);
  EXPECT_EQ(set_of(f, "points").size(), 2u * 5u * 2u);
  EXPECT_NE(f.note.find("learning_rate"), std::string::npos) << "says what was left out";
  const Json& first = set_of(f, "points")[0];
  EXPECT_EQ(first["series"], "dense at 1e12");
  EXPECT_NEAR(first["high"].get<double>() - first["low"].get<double>(), 0.01, 1e-9) << "both seeds of the best rate";
  const Figure flops = figure(study_figures(recipes), "loss-flops-per-pass");
  EXPECT_EQ(set_of(flops, "points").size(), 20u);
  EXPECT_NE(flops.note.find("learning_rate"), std::string::npos);
}

TEST(StudyFigures, BestSizesAndExponentAreThoseOfTheBestOfAGrid) {
  const std::vector<Json> records = grid_of_rates();
  const Recipes recipes = summarize(records);
  const Figure f = loss_against_parameters(recipes);
  ASSERT_EQ(set_of(f, "optima").size(), 4u);
  for (const Json& optimum : set_of(f, "optima")) {
    const std::string series = optimum["series"];
    const double want = (series[0] == 'd' ? 1.5e5 : 2e5) * (series.ends_with("4e12") ? 2 : 1);
    EXPECT_NEAR(optimum["x"].get<double>() / want, 1, 1e-6) << series;
  }
  const HtmlTable scaling = scaling_table(recipes);
  ASSERT_EQ(scaling.rows.size(), 2u);
  EXPECT_EQ(scaling.rows[0][2], "0.500");
  EXPECT_EQ(scaling.rows[1][2], "0.500");
}

TEST(StudyFigures, WhatHasNoGridIsShownWhole) {
  std::vector<Json> records = grid_of_rates();
  for (Json& r : records) r["grid"] = Json::object();
  const Recipes recipes = summarize(records);
  EXPECT_EQ(best_of_grid(recipes).size(), 80u);
  EXPECT_EQ(loss_against_parameters(recipes).note.find("learning_rate"), std::string::npos);
}

// Values of a grid may differ by some weights (routers); without names of sizes the parameters part them.
TEST(StudyFigures, ASizeIsItsNameOrElseItsParameters) {
  const auto best = [](const std::vector<Json>& records) { return best_of_grid(summarize(records)).size(); };
  const Json every1{{"routing.every", 1}}, every2{{"routing.every", 2}};
  EXPECT_EQ(best({record({.variant = "joint", .size = "s", .parameters = 1001, .loss = 1, .grid = every1}),
                  record({.variant = "joint", .size = "s", .parameters = 1002, .loss = 2, .grid = every2})}),
            1u);
  EXPECT_EQ(best({record({.variant = "joint", .size = "", .parameters = 1001, .loss = 1, .grid = every1}),
                  record({.variant = "joint", .size = "", .parameters = 2002, .loss = 2, .grid = every2})}),
            2u);
}

// Losses of a study of two budgets, a seed each: of the dense models the best size grows, of the routed ones a curve so
// flat and noisy leaves its best size and the exponent open.
TEST(StudyFigures, WhatTheNoiseLeavesOpenIsNeitherDrawnNorPrinted) {
  const double sizes[] = {7e4, 1.36e5, 2.35e5, 5.2e5, 9.4e5};
  const double losses[2][2][5] = {{{1.5813, 1.5794, 1.6546, 1.8447, 2.1004}, {1.4666, 1.4249, 1.4424, 1.5082, 1.6018}},
                                  {{1.6189, 1.5870, 1.6117, 1.6863, 1.8480}, {1.4924, 1.5363, 1.4654, 1.4651, 1.4891}}};
  std::vector<Json> records;
  for (int v = 0; v < 2; v++)
    for (int b = 0; b < 2; b++)
      for (int s = 0; s < 5; s++)
        records.push_back(record({.variant = v == 0 ? "dense" : "joint",
                                  .size = kSizes[s],
                                  .parameters = sizes[s],
                                  .budget = b == 0 ? 3e12 : 1e13,
                                  .loss = losses[v][b][s]}));
  const Recipes recipes = summarize(records);
  const HtmlTable scaling = scaling_table(recipes);
  ASSERT_EQ(scaling.rows.size(), 2u);
  EXPECT_NE(scaling.rows[0][3].find(" to "), std::string::npos) << scaling.rows[0][3];
  EXPECT_EQ(scaling.rows[1][3], "too wide to say");
  const Figure f = loss_against_parameters(recipes);
  int open = 0;
  for (const Json& optimum : set_of(f, "optima")) {
    const bool wide = optimum["tip"].get<std::string>().ends_with("too wide to say");
    open += wide;
    EXPECT_EQ(optimum["low"] == optimum["high"], wide) << optimum;
  }
  EXPECT_EQ(open, 1);
}

Json routed(const std::string& variant, Json routing, double loss, Json grid = Json::object()) {
  return record(
      {.variant = variant, .loss = loss, .changed = {{"routing", std::move(routing)}}, .grid = std::move(grid)});
}

TEST(Labels, ADenseModelHasNoCapacity) {
  const Json grid{{"routing.capacity", 0.125}, {"train.learning_rate", 0.004}};
  EXPECT_EQ(summarize({routed("dense", {{"topology", "dense"}}, 3, grid)})[0].label, "dense, learning_rate = 0.004");
  EXPECT_EQ(summarize({routed("joint", Json::object(), 3, grid)})[0].label,
            "joint, capacity = 0.125, learning_rate = 0.004");
  EXPECT_EQ(telling_values({{"routing.topology", "dense"}}, {{"routing", {{"topology", "dense"}}}}).size(), 1u);
}

// Twenty ms a step, but ten minutes by the clock: it was paused.
TEST(Summary, TimeIsTheMedianStepsTimesSteps) {
  const HtmlTable table = summary_table(summarize({record({.variant = "dense"})}));
  EXPECT_EQ(table.head.back(), "time");
  EXPECT_EQ(table.rows[0].back(), duration_text(2));
}

}  // namespace
}  // namespace isobath
