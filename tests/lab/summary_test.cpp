// Records put together: spread over seeds, differences seed by seed, agreement.
#include "lab/summary.h"

#include <gtest/gtest.h>

#include "lab/record.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

Json record(const std::string& variant, int seed, double loss, std::vector<double> accuracy = {},
            const std::string& size = "") {
  Json layers = Json::array();
  for (const double a : accuracy) layers.push_back({{"share", 0.125}, {"accuracy", a}});
  return {{"variant", variant},
          {"recipe", variant + size},
          {"size", size},
          {"seed", seed},
          {"budget", 1e9},
          {"parameters", 1000},
          {"flops_per_token", 10.0},
          {"dense_flops_per_token", 20.0},
          {"tokens", 100},
          {"top_k", {{"loss", loss}, {"layers", layers}}},
          {"steps", 10},
          {"measured", {{"step_ms", 1.0}}}};
}

std::string cell(const HtmlTable& table, const std::string& column, size_t row) {
  const auto at = std::find(table.head.begin(), table.head.end(), column);
  EXPECT_NE(at, table.head.end()) << column;
  return table.rows[row][size_t(at - table.head.begin())];
}

TEST(Summary, DifferencesAreTakenSeedBySeed) {
  // Seeds differ by 1, models by 0.1: what is common to a seed drops out. A seed that the first has not counts nothing.
  const std::vector<Json> records{record("dense", 1, 2.0), record("dense", 2, 3.0), record("joint", 2, 2.9),
                                  record("joint", 1, 1.9), record("joint", 3, 9.0)};
  const HtmlTable table = summary_table(summarize(records));
  EXPECT_EQ(cell(table, "loss (top-k)", 0), "2.5000 +- 0.7071");
  EXPECT_EQ(cell(table, "against first", 0), "-");
  EXPECT_EQ(cell(table, "against first", 1), "-0.1000 +- 0.0000");
}

TEST(Summary, TheFirstIsOfTheSameSize) {
  const std::vector<Json> records{record("dense", 1, 2.0, {}, "small"), record("dense", 1, 5.0, {}, "large"),
                                  record("joint", 1, 4.0, {}, "large"), record("joint", 2, 4.0, {}, "small")};
  const HtmlTable table = summary_table(summarize(records));
  EXPECT_EQ(cell(table, "against first", 1), "-");
  EXPECT_EQ(cell(table, "against first", 2), "-1.0000");
  EXPECT_EQ(cell(table, "against first", 3), "-") << "no seed in common";
}

TEST(Summary, TheSameRecipeOnAnotherTextIsAnotherModel) {
  std::vector<Json> records{record("dense", 1, 2.0), record("joint", 1, 1.9), record("dense", 1, 4.0),
                            record("joint", 1, 3.0), record("joint", 2, 3.2)};
  for (size_t i = 0; i < records.size(); i++) records[i]["corpus"] = i < 2 ? "aaaabbbb" : "ccccbbbb";
  const auto recipes = summarize(records);
  ASSERT_EQ(recipes.size(), 4u);
  EXPECT_EQ(recipes[3].runs.size(), 2u);
  EXPECT_EQ(recipes[1].label, "joint, text aaaa");
  EXPECT_EQ(recipes[3].text, "text cccc");
  const HtmlTable table = summary_table(recipes);
  EXPECT_EQ(cell(table, "against first", 1), "-0.1000");
  EXPECT_EQ(cell(table, "against first", 2), "-") << "the first of its text";
  EXPECT_EQ(cell(table, "against first", 3), "-1.0000");
  EXPECT_EQ(summarize({records[0]})[0].label, "dense") << "one text needs no name";
  records[4]["corpus"] = "";  // a plain run notes none
  EXPECT_EQ(summarize({records[0], records[4]})[1].label, "joint");
}

TEST(Summary, AgreementIsTheMeanOverSectionsAndSeeds) {
  const std::vector<Json> records{record("dense", 1, 2.0), record("joint", 1, 2.0, {0.9, 0.8}),
                                  record("joint", 2, 2.0, {1.0, 0.9})};
  const HtmlTable table = summary_table(summarize(records));
  EXPECT_EQ(cell(table, "agreement", 0), "-");
  EXPECT_EQ(cell(table, "agreement", 1), "90.0%");
  EXPECT_DOUBLE_EQ(*causal_agreement(records[1]["top_k"]), 0.85);
  EXPECT_FALSE(causal_agreement(records[0]["top_k"]));
}

}  // namespace
}  // namespace isobath
