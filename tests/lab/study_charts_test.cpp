// Figures of studies, from records whose answer is known.
#include "lab/study_charts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "base/parallel.h"
#include "base/units.h"
#include "lab/capacity_chart.h"
#include "lab/isoflop_charts.h"
#include "lab/study.h"
#include "lab/training_memory.h"
#include "train/evaluate.h"
#include "train/trainer.h"

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
  again["top_k"]["loss"] = again["top_k"]["loss"].get<double>() + 0.7;  // above other rates with their one seed
  records.push_back(again);
  const Recipes recipes = summarize(records);
  const Figure f = loss_against_parameters(recipes);
  EXPECT_EQ(set_of(f, "points").size(), 2u * 5u * 2u);
  EXPECT_NE(f.note.find("learning_rate"), std::string::npos) << "says what was left out";
  const Json& first = set_of(f, "points")[0];
  EXPECT_EQ(first["series"], "dense at 1e12");
  EXPECT_NEAR(first["high"].get<double>() - first["low"].get<double>(), 0.7, 1e-9) << "both seeds of the best rate";
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

// FLOPs that are a power of the parameters are hit between sizes, too.
TEST(StudyFigures, BestSizesStandBesideThoseOfDenseModels) {
  std::vector<Json> records;
  const auto add = [&](const std::string& variant, double best, double lowest, double flops_share) {
    for (const double size : {5e4, 1e5, 2e5, 4e5}) {
      Json r = record({.variant = variant,
                       .size = std::to_string(size),
                       .parameters = size,
                       .loss = lowest + 0.05 * std::pow(std::log(size / best), 2)});
      r["dense_flops_per_token"] = 3e-3 * std::pow(size, 1.5);
      r["flops_per_token"] = flops_share * double(r["dense_flops_per_token"]);
      records.push_back(r);
    }
  };
  add("joint", 2.4e5, 1.9, 0.5);
  add("dense", 1.2e5, 2, 1);
  add("still falling", 5e5, 1.5, 0.25);
  const HtmlTable table = best_sizes_table(summarize(records));
  ASSERT_EQ(table.rows.size(), 2u) << "the third has its best size outside";
  const std::vector<std::string>&dense = table.rows[0], &joint = table.rows[1];
  EXPECT_EQ(dense[1], "dense");
  EXPECT_EQ(dense[2], "120k");
  EXPECT_EQ(dense[5], "2.0000");
  EXPECT_EQ(dense[7], with_letter(3e-3 * std::pow(1.2e5, 1.5)));
  for (const size_t of_dense : {4u, 6u, 8u}) EXPECT_EQ(dense[of_dense], "");
  EXPECT_EQ(joint[4], "2.00 times");
  EXPECT_EQ(joint[6], "-0.1000");
  EXPECT_EQ(joint[8], "1.41 times");
  records.resize(4);
  EXPECT_EQ(best_sizes_table(summarize(records)).rows[0][8], "") << "no dense models";
}

// Dense comes first in one figure and last in another.
TEST(StudyFigures, ASeriesHasOneColourInAllFigures) {
  std::vector<Json> records;
  for (const char* variant : {"joint", "every block", "dense"})
    for (const double size : {1e5, 2e5, 4e5})
      records.push_back(record({.variant = variant, .size = std::to_string(size), .parameters = size}));
  std::map<std::string, std::set<std::string>> colors, names;
  int figures_with_points = 0;
  for (const Figure& f : study_figures(summarize(records))) {
    const Json& data = f.chart.spec["data"];
    if (std::none_of(data.begin(), data.end(), [](const Json& set) { return set["name"] == "points"; })) continue;
    figures_with_points++;
    for (const Json& scale : f.chart.spec["scales"]) {
      if (scale["name"] != "color") continue;
      const Json& series = set_of(f, "series");
      ASSERT_EQ(scale["range"].size(), series.size()) << f.name;
      for (size_t i = 0; i < series.size(); i++) {
        colors[series[i]["name"]].insert(scale["range"][i]);
        names[scale["range"][i]].insert(series[i]["name"]);
      }
    }
  }
  EXPECT_GE(figures_with_points, 3);
  EXPECT_GE(colors.size(), 3u);
  for (const auto& [name, used] : colors) EXPECT_EQ(used.size(), 1u) << name;
  for (const auto& [color, used] : names) EXPECT_EQ(used.size(), 1u) << color;
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

// Options at their default stand in no record.
TEST(Capacity, ADefaultIsAValueToo) {
  const Json dense = routed("dense", {{"topology", "dense"}}, 3);
  const std::vector<Json> capacities{dense, routed("joint", Json::object(), 2, {{"routing.capacity", 0.125}}),
                                     routed("joint", {{"capacity", {0.5}}}, 2.5, {{"routing.capacity", 0.5}})};
  const Figure f = figure(study_figures(summarize(capacities)), "capacity");
  ASSERT_EQ(set_of(f, "points").size(), 2u);
  EXPECT_EQ(set_of(f, "points")[0]["x"], 0.125);
  EXPECT_EQ(set_of(f, "points")[1]["y"], 2.5);
  EXPECT_EQ(set_of(f, "series").size(), 1u);
  EXPECT_EQ(f.chart.spec["scales"][0]["type"], "log");

  const std::vector<Json> frequencies{dense, routed("joint", Json::object(), 2), routed("joint", {{"every", 1}}, 2.5)};
  const Figure every = figure(study_figures(summarize(frequencies)), "capacity");
  EXPECT_EQ(set_of(every, "series"), (Json{{{"name", "learned, every 1"}}, {{"name", "learned, every 2"}}}));
  EXPECT_EQ(every.chart.spec["scales"][0]["type"], "linear") << "a logarithm of one value has no range";

  const std::vector<Json> routers{routed("joint", Json::object(), 2), routed("random", {{"router", "random"}}, 2.5)};
  EXPECT_EQ(set_of(loss_against_capacity(summarize(routers)), "series").size(), 2u);
  const std::vector<Json> one{dense, routed("joint", Json::object(), 2), routed("predictor", {{"causal", "none"}}, 2)};
  EXPECT_TRUE(loss_against_capacity(summarize(one)).chart.table.rows.empty()) << "nothing to compare";
}

TEST(Capacity, ModelsAlikeInTheseAreShownByTheirBest) {
  std::vector<Json> records;
  for (const double rate : kRates)
    for (const double capacity : {0.125, 0.5})
      records.push_back(
          record({.variant = "joint",
                  .loss = 2 + capacity + std::abs(rate - 0.004),
                  .changed = {{"routing", {{"capacity", {capacity}}}}, {"train", {{"learning_rate", rate}}}},
                  .grid = {{"train.learning_rate", rate}, {"routing.capacity", capacity}}}));
  const Figure f = loss_against_capacity(summarize(records));
  ASSERT_EQ(set_of(f, "points").size(), 2u);
  EXPECT_EQ(set_of(f, "points")[0]["y"], 2.125);
  EXPECT_NE(f.note.find("did best"), std::string::npos);
}

TEST(Labels, ADenseModelHasNoCapacity) {
  const Json grid{{"routing.capacity", 0.125}, {"train.learning_rate", 0.004}};
  EXPECT_EQ(summarize({routed("dense", {{"topology", "dense"}}, 3, grid)})[0].label, "dense, learning_rate = 0.004");
  EXPECT_EQ(summarize({routed("joint", Json::object(), 3, grid)})[0].label,
            "joint, capacity = 0.125, learning_rate = 0.004");
  EXPECT_EQ(telling_values({{"routing.topology", "dense"}}, {{"routing", {{"topology", "dense"}}}}).size(), 1u);
}

// A run as a study records it.
Json planned(const std::string& variant, const RunConfig& config) {
  const PlannedRun run = plan_run(config, Tokenizer::bytes());
  Json r = record({.variant = variant, .changed = run.changed});
  r["parameters"] = run.parameters;
  return r;
}

RunConfig small(double capacity) {
  RunConfig c;
  c.model.num_hidden_layers = 4;
  c.data.context = 64;
  c.data.batch = 8;
  c.data.micro_batch = 4;
  c.train.flops = 1e10;
  if (capacity == 1) c.model.routing.topology = Topology::kDense;
  c.model.routing.capacity = {capacity == 1 ? 0.125 : capacity};
  return c;
}

TEST(Memory, APlanFollowsFromARecord) {
  for (const bool half : {false, true}) {
    RunConfig c = small(0.25);
    if (half) c.train.memory.storage = Storage::kBf16;
    const auto plan = training_plan(planned("joint", c));
    ASSERT_TRUE(plan);
    c.data.path = "text";
    const RunConfig full = resolved(c, Tokenizer::bytes());
    const int before = thread_count();
    set_thread_count(1);
    const PlanTable want = plan_table(full.model, limits_of({.T = 64, .B = 4}), c.train.memory);
    set_thread_count(before);
    EXPECT_EQ(plan->training_bytes(), want.training_bytes());
    EXPECT_EQ(plan->total.activation_bytes, want.total.activation_bytes);
    EXPECT_EQ(plan->weight_bytes, 16 * want.total.parameters);
    EXPECT_EQ(thread_count(), before);
  }
  Json other = planned("joint", small(0.25));
  other["parameters"] = other["parameters"].get<int64_t>() + 1;
  EXPECT_FALSE(training_plan(other)) << "no vocabulary gives so many";
}

TEST(Memory, ModelsStandSideBySideAndRunsThatTakeTheSameOnce) {
  std::vector<Json> records{planned("dense", small(1)), planned("joint, 50%", small(0.5)),
                            planned("joint, 12.5%", small(0.125))};
  RunConfig c = small(0.125);
  c.train.learning_rate = 0.01;
  c.train.flops = 2e10;
  records.push_back(planned("joint, 12.5%", c));
  const Figure f = figure(study_figures(summarize(records)), "memory");
  ASSERT_EQ(f.chart.table.rows.size(), 3u);
  const Json& dots = set_of(f, "dots");
  ASSERT_EQ(dots.size(), 6u);
  EXPECT_EQ(dots[0]["label"], "dense");
  EXPECT_EQ(dots[4]["label"], "joint, 12.5%");
  for (size_t d = 2; d < 6; d++) EXPECT_LT(dots[d]["x"], dots[d - 2]["x"]) << "the fewer rows, the less memory";
}

TEST(Curves, HaveRoomForTwelveModels) {
  std::vector<Json> records;
  for (int i = 0; i < 40; i++) {
    records.push_back(record({.variant = "joint " + std::to_string(i)}));
    records.back()["curve"]["validation"] = Json::array({Json::array({1e11, 2.5, 2.5, 0.9}), Json::array({1e12, 2})});
    if (i < 5) records.back()["curve"]["validation"] = Json::array({Json::array({1e12, 2})});
  }
  const std::vector<Figure> figures = study_figures(summarize(records));
  EXPECT_EQ(set_of(figure(figures, "agreement"), "series").size(), 12u);
  EXPECT_EQ(set_of(figure(figures, "agreement"), "series")[0]["name"], "joint 5");
  EXPECT_NE(figure(figures, "agreement").note.find("12 of 35"), std::string::npos);
  EXPECT_EQ(set_of(figure(figures, "learning-curves"), "series").size(), 12u);
}

// A record does not tell how much of the text the evaluations before the last one read.
TEST(Curves, TheEvaluationAtTheEndIsNotOnThem) {
  std::vector<Json> records{record({.variant = "many"}), record({.variant = "one"})};
  records[0]["curve"]["validation"] =
      Json::array({Json::array({1e11, 2.5}), Json::array({5e11, 2.2}), Json::array({1e12, 1.8})});
  const Figure f = figure(study_figures(summarize(records)), "learning-curves");
  ASSERT_EQ(set_of(f, "points").size(), 3u);
  EXPECT_EQ(set_of(f, "points")[1]["y"], 2.2);
  EXPECT_EQ(set_of(f, "points")[2]["series"], "one") << "which is all that there is of it";
}

// Labels beside each other must neither be cut nor run out of the figure.
TEST(Curves, LongNamesHaveRoomInTheLegend) {
  const auto width = [](const std::string& variant) {
    const std::vector<Json> records{record({.variant = variant})};
    const Figure f = figure(study_figures(summarize(records)), "learning-curves");
    for (const Json& signal : f.chart.spec["signals"])
      if (signal["name"] == "label_width") return signal["value"].get<double>();
    return 0.0;
  };
  EXPECT_GT(width("all but the first, 930k"), width("dense") + 5 * 18);
}

// Twenty ms a step, but ten minutes by the clock: it was paused.
TEST(Summary, TimeIsTheMedianStepsTimesSteps) {
  const HtmlTable table = summary_table(summarize({record({.variant = "dense"})}));
  EXPECT_EQ(table.head.back(), "time");
  EXPECT_EQ(table.rows[0].back(), duration_text(2));
}

}  // namespace
}  // namespace isobath
