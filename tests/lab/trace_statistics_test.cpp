#include "lab/trace_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace isobath {
namespace {

// "ab" over and over in windows of 8: a goes through both routed blocks, b through the second in the window's second
// half only. a is followed by an entropy of 2 and a loss of 3, b by 1 and 0.5; the end has no loss.
Trace trace_of(int64_t tokens) {
  Trace trace{.by = SelectBy::kTopK,
              .sections{},
              .window = 8,
              .token{},
              .entropy{},
              .loss{},
              .layer = {{.section = {.index = 1, .block = 1, .routed = true}, .routed{}, .score{}, .routing{}},
                        {.section = {.index = 3, .block = 3, .routed = true}, .routed{}, .score{}, .routing{}}},
              .experts{}};
  for (int64_t n = 0; n < tokens; n++) {
    const bool a = n % 2 == 0;
    trace.token.push_back(a ? 'a' : 'b');
    trace.entropy.push_back(a ? 2 : 1);
    trace.loss.push_back(a ? 3 : 0.5f);
    trace.layer[0].routed.push_back(a);
    trace.layer[1].routed.push_back(a || n % 8 >= 4);
  }
  trace.loss.back() = std::numeric_limits<float>::quiet_NaN();
  return trace;
}

TEST(TraceStatistics, TokensByDepth) {
  const Trace trace = trace_of(40);
  const std::vector<TokenDepth> tokens = tokens_by_depth(trace);
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].token, 'a');
  EXPECT_EQ(tokens[1].token, 'b');
  EXPECT_EQ(tokens[0].count, 20);
  EXPECT_DOUBLE_EQ(tokens[0].depth, 2);
  EXPECT_DOUBLE_EQ(tokens[1].depth, 0.5);
  EXPECT_DOUBLE_EQ(tokens[0].entropy, 2);
  EXPECT_DOUBLE_EQ(tokens[0].loss, 3);
  EXPECT_DOUBLE_EQ(tokens[1].loss, 0.5) << "the last token, which has no loss, is a b";
  EXPECT_EQ(tokens_by_depth(trace, 21).size(), 0u);
}

TEST(TraceStatistics, TheTableHasBothEnds) {
  std::vector<TokenDepth> tokens;
  for (const char* c = "abcde \n"; *c != 0; c++) tokens.push_back({.token = *c, .count = 10});
  const auto first = [&](size_t ends) {
    std::string all;
    for (const auto& row : depth_table(tokens, Tokenizer::bytes(), ends).rows) all += row[0];
    return all;
  };
  EXPECT_EQ(first(2), "ab...\u00B7\u21B5");
  EXPECT_EQ(first(3), "abc...e\u00B7\u21B5");
  EXPECT_EQ(first(4), "abcde\u00B7\u21B5");
  tokens = {{.token = 0xC3, .count = 1}};
  EXPECT_EQ(first(1), "<195>");
  tokens = {{.token = 27, .count = 1}};
  EXPECT_EQ(first(1), "<27>") << "not a sign that steers a terminal";
}

TEST(TraceStatistics, SharesByPlaceInTheWindow) {
  const HtmlTable table = shares_by_place(trace_of(40));
  ASSERT_EQ(table.rows.size(), 8u);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"0 to 0", "100.0%", "100.0%"}));
  EXPECT_EQ(table.rows[3], (std::vector<std::string>{"3 to 3", "0.0%", "0.0%"}));
  EXPECT_EQ(table.rows[7], (std::vector<std::string>{"7 to 7", "0.0%", "100.0%"}));
  EXPECT_EQ(shares_by_place(trace_of(4)).rows.size(), 4u) << "a text shorter than the window";
  EXPECT_TRUE(shares_by_place(Trace()).rows.empty());
}

TEST(TraceStatistics, CorrelationsWithEntropyAndLoss) {
  Trace trace = trace_of(8 * 64);
  const RankCorrelation entropy = depth_and_entropy(trace), loss = depth_and_loss(trace);
  EXPECT_GT(entropy.value, 0.8);
  EXPECT_GT(loss.value, 0.8);
  trace.loss.back() = 1e9f;
  EXPECT_EQ(depth_and_loss(trace).value, loss.value) << "the last token has no loss";
  EXPECT_TRUE(entropy.interval);
  EXPECT_FALSE(loss.interval && std::isnan(loss.interval->low));
  EXPECT_NE(text_of(entropy).find("95% interval"), std::string::npos);
  EXPECT_EQ(text_of({.value = -0.25}), "-0.250");
}

}  // namespace
}  // namespace isobath
