#include "ops/select.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "reference/select.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

struct Chosen {
  std::vector<int32_t> index, begin;
};
CF32 view(const std::vector<float>& score) { return {score.data(), {int64_t(score.size())}}; }

Chosen top_k(const std::vector<float>& score, const List& sequence_begin, double capacity) {
  List index(int64_t(score.size())), begin(sequence_begin.size()), scratch(int64_t(score.size()));
  const int64_t n = select_top_k(index, begin, view(score), sequence_begin, capacity, scratch);
  index.values.resize(size_t(n));
  return {index.values, begin.values};
}
Chosen above(const std::vector<float>& score, const List& sequence_begin, float offset) {
  List index(int64_t(score.size())), begin(sequence_begin.size());
  const int64_t n = select_above(index, begin, view(score), sequence_begin, offset);
  index.values.resize(size_t(n));
  return {index.values, begin.values};
}

TEST(Select, CapacityIsFlooredAndAtLeastOneRow) {
  EXPECT_EQ(capacity_rows(0.125, 0), 0);
  for (int64_t T = 1; T <= 16; T++) EXPECT_EQ(capacity_rows(0.125, T), T < 16 ? 1 : 2) << T;
  EXPECT_EQ(capacity_rows(0.7, 10), 7);  // 0.7 * 10 is below 7 by its rounding
  EXPECT_EQ(capacity_rows(0.29, 100), 29);
  for (const int64_t T : {1, 7, 4096}) EXPECT_EQ(capacity_rows(1, T), T);
  EXPECT_THROW(capacity_rows(0, 8), Error);
  EXPECT_THROW(capacity_rows(1.01, 8), Error);
  EXPECT_THROW(capacity_rows(NAN, 8), Error);
}

// Sequences of odd lengths, an empty one, scores with and without ties.
TEST(Select, TopKMatchesTheDefinition) {
  const List begin = {0, 1, 1, 8, 24, 324, 1324};
  for (const double levels : {0.0, 1.0, 3.0, 50.0}) {  // 0: no rounding, so hardly a tie
    std::vector<float> score = random_buffer({1324}, 1).values;
    for (float& s : score) s = levels > 0 ? float(std::round(double(s) * levels) / levels) : s;
    for (const double capacity : {0.01, 0.125, 0.5, 0.999, 1.0}) {
      const Chosen got = top_k(score, begin, capacity);
      std::vector<int32_t> want;
      for (int64_t s = 0; s + 1 < begin.size(); s++) {
        EXPECT_EQ(got.begin[size_t(s)], int32_t(want.size()));
        const auto rows =
            reference::top_k(score, begin[s], begin[s + 1], capacity_rows(capacity, begin[s + 1] - begin[s]));
        want.insert(want.end(), rows.begin(), rows.end());
      }
      EXPECT_EQ(got.begin.back(), int32_t(want.size()));
      ASSERT_EQ(got.index, want) << levels << " levels, capacity " << capacity;
    }
  }
}

TEST(Select, ShortSequencesChooseExactly) {
  for (int32_t T = 1; T <= 16; T++) {
    const std::vector<float> score = random_buffer({T}, uint64_t(T)).values;
    EXPECT_EQ(top_k(score, {0, T}, 0.125).index, reference::top_k(score, 0, T, T < 16 ? 1 : 2));
  }
}

TEST(Select, EqualScoresChooseTheEarlierRows) {
  EXPECT_EQ(top_k(std::vector<float>(9, -3.5f), {0, 9}, 0.5).index, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(top_k({-0.0f, 0.0f, -0.0f, 0.0f}, {0, 4}, 0.5).index, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(top_k({1, 2, 2, 2, 5}, {0, 5}, 0.6).index, (std::vector<int32_t>{1, 2, 4}));
}

TEST(Select, OrdersEveryMagnitudeAndSign) {
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(top_k({-kMax, -1, -kTiny, 0, kTiny, 1, kMax}, {0, 7}, 0.58).index, (std::vector<int32_t>{3, 4, 5, 6}));
  EXPECT_EQ(top_k({kMax, -kMax, 1, -1}, {0, 4}, 0.25).index, (std::vector<int32_t>{0}));
}

TEST(Select, ASequenceDoesNotSeeItsNeighbours) {
  const std::vector<float> score = random_buffer({300}, 1).values;
  const Chosen all = top_k(score, {0, 100, 300}, 0.25);
  const Chosen alone = top_k({score.begin() + 100, score.end()}, {0, 200}, 0.25);
  for (size_t i = 0; i < alone.index.size(); i++) EXPECT_EQ(all.index[25 + i], alone.index[i] + 100);
}

TEST(Select, IsTheSameForAnyNumberOfThreads) {
  const std::vector<float> score = random_buffer({9000}, 1).values;
  const List begin = {0, 10, 4000, 4000, 9000};
  const auto run = [&] { return top_k(score, begin, 0.125).index; };
  EXPECT_EQ(with_threads(1, run), with_threads(2, run));
  EXPECT_EQ(with_threads(1, run), with_threads(5, run));
}

TEST(Select, AboveIsStrict) {
  const std::vector<float> score = {0.5f, 0, -0.0f, 1e-30f, -1, 2};
  const Chosen got = above(score, {0, 2, 2, 6}, 0);
  EXPECT_EQ(got.index, (std::vector<int32_t>{0, 3, 5}));
  EXPECT_EQ(got.begin, (std::vector<int32_t>{0, 1, 1, 3}));
  EXPECT_EQ(above(score, {0, 6}, -0.5f).index, (std::vector<int32_t>{5}));
  EXPECT_EQ(above(score, {0, 6}, -2).index, (std::vector<int32_t>{}));
  EXPECT_EQ(above(score, {0, 6}, std::numeric_limits<float>::infinity()).index.size(), 6u);
}

template <class F>
bool throws(F f) {
  try {
    f();
  } catch (const Error&) {
    return true;
  }
  return false;
}

TEST(Select, NonFiniteScoresStopWithTheRowNamed) {
  for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    const std::vector<float> score = {1, 2, bad, 4};
    try {
      top_k(score, {0, 4}, 0.5);
      FAIL();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("select_top_k: the score of row 2 is"), std::string::npos) << e.what();
      EXPECT_EQ(e.fault(), Fault::kWork);
    }
    EXPECT_EQ(std::isnan(bad), throws([&] { above(score, {0, 4}, 0); }));
  }
}

TEST(Select, AboveTakesInfiniteScoresAtTheirWord) {
  EXPECT_EQ(above({-INFINITY, 1, INFINITY}, {0, 3}, -2).index, std::vector<int32_t>{2});
}

TEST(Select, NoRowsAndNoSequences) {
  EXPECT_EQ(top_k({}, {0, 0, 0}, 0.5).begin, (std::vector<int32_t>{0, 0, 0}));
  EXPECT_EQ(top_k({}, {0}, 0.5).begin, (std::vector<int32_t>{0}));
  EXPECT_EQ(above({}, {0, 0}, 0).begin, (std::vector<int32_t>{0, 0}));
}

TEST(Select, RefusesWrongSequencesAndSmallOutputs) {
  const std::vector<float> score = {1, 2, 3};
  EXPECT_THROW(top_k(score, {0, 2}, 0.5), Error);
  EXPECT_THROW(top_k(score, {0, 4, 3}, 0.5), Error);
  EXPECT_THROW(top_k(score, {1, 3}, 0.5), Error);
  EXPECT_THROW(above(score, {0, 3}, NAN), Error);
  List begin(2), index(1), scratch(3), none(0);
  EXPECT_THROW(select_top_k(index, begin, view(score), List{0, 3}, 0.9, scratch), Error);
  EXPECT_THROW(select_top_k(scratch, begin, view(score), List{0, 3}, 0.9, none), Error);
  EXPECT_THROW(select_above(index, begin, view(score), List{0, 3}, 0), Error);
}

}  // namespace
}  // namespace isobath
