// What a study's page says of best sizes: where they are known, how well, and where they are not.
#include "lab/study_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "lab/isoflop_charts.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

constexpr double kBest = 2e6;

Json record(double parameters, double loss, int seed, double budget) {
  const std::string size = fmt::format("{:.0f}", parameters);
  return {{"variant", "dense"},
          {"run", fmt::format("{} {} {}", size, seed, budget)},
          {"recipe", fmt::format("{} {}", size, budget)},
          {"size", size},
          {"seed", seed},
          {"budget", budget},
          {"parameters", parameters},
          {"flops_per_token", 2 * parameters},
          {"dense_flops_per_token", 2 * parameters},
          {"tokens", 100},
          {"steps", 10},
          {"changed", Json::object()},
          {"top_k", {{"loss", loss}, {"layers", Json::array()}, {"windows", 4}}},
          {"curve", {{"validation", {{budget / 2, loss + 1}, {budget, loss}}}}},
          {"measured",
           {{"seconds", 1.0},
            {"step_ms", 2.0},
            {"tokens_per_s", 1e4},
            {"peak_share", 0.5},
            {"memory_bytes", 1e6},
            {"machine", "a machine"},
            {"threads", 1},
            {"simd", "none"},
            {"version", "1"}}}};
}

// Seven sizes, three seeds: a parabola of which the lowest point is at kBest, and noise.
std::vector<Json> study(double bend, double noise, uint64_t draw, double budget = 1e12, double best = kBest) {
  const Rng rng(draw, Stream::kBench, 7);
  std::vector<Json> records;
  for (int i = 0; i < 7; i++)
    for (int seed = 0; seed < 3; seed++) {
      const double size = std::round(4e5 * std::pow(1.6, i));
      const double loss = 1.2 + bend * std::pow(std::log(size / best), 2);
      records.push_back(record(size, loss + noise * double(rng.normal(uint64_t(i), uint64_t(seed))), seed, budget));
    }
  return records;
}

struct Told {
  std::vector<std::string> size, interval;  // of the rows of fits
  Json optima;
  std::string page;
};
Told told(const std::vector<Json>& records) {
  Told t;
  for (const Figure& figure : study_figures(summarize(records))) {
    if (figure.name != "loss-parameters") continue;
    const HtmlTable& table = figure.chart.table;
    const auto column = [&](const char* name) {
      return size_t(std::find(table.head.begin(), table.head.end(), name) - table.head.begin());
    };
    for (const auto& row : table.rows)
      if (row[0] == "dense: fit") {
        t.size.push_back(row[column("best size")]);
        t.interval.push_back(row[column("interval")]);
      }
    for (const Json& set : figure.chart.spec["data"])
      if (set["name"] == "optima") t.optima = set["values"];
  }
  StudyReport report;
  report.title = "a study";
  report.records = records;
  t.page = study_page(report, "").finish();
  return t;
}
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(StudyPage, BestSizesThatAreKnownHaveTheirInterval) {
  const Told t = told(study(0.05, 0.003, 1));
  ASSERT_EQ(t.interval.size(), 1u);
  EXPECT_EQ(t.size[0], "2.00M");
  EXPECT_EQ(t.interval[0], "1.97M to 2.04M");
  ASSERT_EQ(t.optima.size(), 1u);
  EXPECT_NEAR(t.optima[0]["low"].get<double>(), 1.97e6, 1e4);
  EXPECT_NEAR(t.optima[0]["high"].get<double>(), 2.04e6, 1e4);
  EXPECT_TRUE(has(t.page, "1.97M to 2.04M"));
  EXPECT_FALSE(has(t.page, "too wide"));
}

TEST(StudyPage, AnIntervalThatIsTooWideIsSaidToBe) {
  const Told t = told(study(0.05, 1, 1));
  ASSERT_EQ(t.interval.size(), 1u);
  EXPECT_EQ(t.size[0], "2.43M");
  EXPECT_EQ(t.interval[0], "too wide to say");
  ASSERT_EQ(t.optima.size(), 1u);
  EXPECT_EQ(t.optima[0]["tip"], "best size 2.43M, too wide to say");
  EXPECT_EQ(t.optima[0]["low"], t.optima[0]["high"]) << "what says nothing is no bar";
  EXPECT_TRUE(has(t.page, "too wide to say"));
}

TEST(StudyPage, PointsWithoutALowestOneHaveNoBestSize) {
  for (const std::vector<Json>& records : {study(-0.05, 0.003, 1), study(0.05, 1, 2)}) {
    const Told t = told(records);
    EXPECT_TRUE(t.interval.empty());
    EXPECT_EQ(t.optima, Json::array());
    EXPECT_TRUE(has(t.page, "data-name=\"loss-parameters\""));
    EXPECT_FALSE(has(t.page, "dense: fit"));
    EXPECT_FALSE(has(t.page, "nan"));
  }
}

TEST(StudyPage, ABestSizeBeyondThePointsIsSaidToBeAndNotDrawn) {
  const Told t = told(study(0.05, 0.003, 1, 1e12, 5e7));
  ASSERT_EQ(t.size.size(), 1u);
  EXPECT_TRUE(t.size[0].ends_with("M (outside)")) << t.size[0];
  EXPECT_EQ(t.optima, Json::array());
}

TEST(StudyPage, AsManyPointsAsCoefficientsHaveNoInterval) {
  const Told t = told({record(1e6, 1.0, 1, 1e12), record(2e6, 0.9, 1, 1e12), record(4e6, 1.0, 1, 1e12)});
  ASSERT_EQ(t.interval.size(), 1u);
  EXPECT_EQ(t.size[0], "2.00M");
  EXPECT_EQ(t.interval[0], "-");
}

// An exponent needs two budgets with a best size.
TEST(StudyPage, ScalingLeavesOutBudgetsWithoutABestSize) {
  const auto rows = [](std::vector<Json> records, const std::vector<Json>& more) {
    records.insert(records.end(), more.begin(), more.end());
    return scaling_table(summarize(records)).rows;
  };
  const std::vector<Json> small = study(0.05, 0.003, 1, 1e12, 1e6), large = study(0.05, 0.003, 2, 1e13, 3.162e6);
  const auto both = rows(small, large);
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0][1], "2");
  EXPECT_NEAR(std::stod(both[0][2]), 0.5, 0.02);
  EXPECT_TRUE(rows(small, study(-0.05, 0.003, 2, 1e13)).empty());
  EXPECT_TRUE(rows(small, study(0.05, 0.003, 2, 1e13, 5e7)).empty());
}

}  // namespace
}  // namespace isobath
