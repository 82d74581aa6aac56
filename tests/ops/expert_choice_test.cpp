#include "ops/expert_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/select.h"
#include "reference/gradient.h"
#include "reference/select.h"
#include "support/experts.h"

namespace isobath {
namespace {
using namespace testing;
using reference::Complex;
using reference::Taken;
using reference::Vec;

// Rows of an expert ascend, and places and lists say the same.
void expect_consistent(Lists& lists, const ExpertTally& tally) {
  const ExpertLists view = lists;
  int64_t listed = 0;
  EXPECT_EQ(view.begin[0], 0);
  for (int64_t e = 0; e < view.experts(); e++)
    for (int32_t j = view.begin[e]; j < view.begin[e + 1]; j++, listed++) {
      EXPECT_EQ(view.place.row(view.row[j])[e], j);
      if (j > view.begin[e]) {
        EXPECT_LT(view.row[j - 1], view.row[j]);
      }
    }
  EXPECT_EQ(listed, tally.assigned);
  EXPECT_EQ(std::count_if(lists.place.values.begin(), lists.place.values.end(), [](int32_t at) { return at >= 0; }),
            listed);
}

void expect_weights(Lists& lists, const Buffer& p, bool over_their_sum) {
  const Table rows = table_of(p);
  const auto taken = lists.taken();
  for (size_t s = 0; s < rows.size(); s++) {
    const std::vector<double> want = reference::expert_weights(rows[s], taken[s], over_their_sum);
    for (size_t o = 0; o < want.size(); o++) {
      const int32_t at = lists.place[int64_t(s) * lists.outputs + int64_t(o)];
      if (at >= 0) {
        ASSERT_NEAR(lists.weight[at], want[o], 1e-6) << s << " " << o;
      }
    }
  }
}

struct Form {
  int64_t E, Z, per_row;
  double capacity_factor = 0, no_op_capacity = 0;
};

TEST(ChooseByToken, IsTheReferencesChoice) {
  const List runs{0, 0, 1, 18, 41};
  for (const Form& f :
       {Form{1, 0, 1}, Form{5, 0, 1}, Form{5, 0, 1, 0.5}, Form{4, 0, 2}, Form{4, 0, 2, 1.0}, Form{2, 0, 2, 0.7},
        Form{3, 2, 1}, Form{3, 1, 1, 0.8}, Form{3, 2, 1, 0, 0.25}, Form{3, 2, 1, 0.6, 0.1}}) {
    const Buffer logit = random_buffer({41, f.E + f.Z}, 1, 2), p = softmax_of(logit);
    Lists lists(41, f.E, f.E + f.Z);
    const ExpertTally tally = choose_by_token(
        lists, logit, p, runs,
        {.per_row = f.per_row, .capacity_factor = f.capacity_factor, .no_op_capacity = f.no_op_capacity});
    expect_consistent(lists, tally);
    expect_weights(lists, p, f.per_row == 2);
    const Table rows = table_of(logit);
    int64_t no_ops = 0, dropped = 0;
    for (int64_t r = 0; r + 1 < runs.size(); r++) {
      const Table run(rows.begin() + runs[r], rows.begin() + runs[r + 1]);
      const auto want =
          reference::token_choice(run, {size_t(f.E), size_t(f.per_row), f.capacity_factor, f.no_op_capacity});
      for (size_t s = 0; s < want.size(); s++)
        for (size_t o = 0; o < want[s].size(); o++) {
          EXPECT_EQ(lists.taken(runs[r] + int64_t(s), int64_t(o)), want[s][o]) << r << " " << s << " " << o;
          if (want[s][o] == Taken::kNothing) (int64_t(o) < f.E ? dropped : no_ops)++;
        }
    }
    EXPECT_EQ(tally.no_ops, no_ops);
    EXPECT_EQ(tally.dropped, dropped);
    EXPECT_EQ(tally.assigned + dropped + no_ops, 41 * f.per_row);
  }
}

TEST(ChooseByToken, EqualScoresTakeTheLowerOutputs) {
  const Buffer logit({3, 4}, 1), p = softmax_of(logit);
  Lists lists(3, 4, 4);
  choose_by_token(lists, logit, p, List{0, 3}, {.per_row = 2});
  for (int64_t s = 0; s < 3; s++) {
    EXPECT_EQ(lists.taken(s, 0), Taken::kExpert);
    EXPECT_EQ(lists.taken(s, 1), Taken::kExpert);
    EXPECT_EQ(lists.taken(s, 2), Taken::kNot);
  }
  Lists with_no_op(3, 3, 4);
  choose_by_token(with_no_op, logit, p, List{0, 3}, {.per_row = 1});
  EXPECT_EQ(with_no_op.taken(2, 0), Taken::kExpert) << "an expert before a no-op of the same score";
}

// Depth moves rows between experts and no-ops; weights stay those of p.
TEST(ChooseByToken, DepthDecidesBetweenExpertsAndNoOps) {
  const Buffer logit = random_buffer({40, 4}, 1), p = softmax_of(logit);
  for (const auto& [depth, no_ops] : {std::pair{1e30f, 0}, {-1e30f, 40}}) {
    Lists lists(40, 3, 4);
    const ExpertTally tally = choose_by_token(lists, logit, p, List{0, 40}, {.per_row = 1, .depth = depth});
    EXPECT_EQ(tally.no_ops, no_ops);
    expect_weights(lists, p, false);
  }
}

TEST(ChooseByToken, CapacitiesAreThoseOfTheFormula) {
  EXPECT_EQ(kept_rows({.per_row = 2, .capacity_factor = 1.25}, 8, 64), 20);
  EXPECT_EQ(kept_rows({.per_row = 1, .capacity_factor = 0.7}, 7, 10), 1);  // 0.7 * 10 / 7 = 1, not 2 by rounding
  EXPECT_EQ(kept_rows({.per_row = 1, .capacity_factor = 0.5}, 4, 1), 1);
  EXPECT_EQ(kept_rows({.per_row = 2, .capacity_factor = 100}, 4, 9), 9);
  EXPECT_EQ(kept_rows({.per_row = 2}, 4, 9), 9);
  EXPECT_EQ(kept_no_ops({.no_op_capacity = 0.7}, 10), 7);
  EXPECT_EQ(kept_no_ops({}, 10), 10);
}

TEST(ChooseByExpert, EachTakesItsBestRowsOfEachRun) {
  const List runs{0, 0, 1, 18, 41};
  const Buffer logit = random_buffer({41, 3}, 1, 2), p = softmax_of(logit);
  for (const double capacity : {0.1, 0.5, 1.0}) {
    Lists lists(41, 3, 3);
    Buffer score({41});
    List select(41), begin(5);
    const ExpertTally tally =
        choose_by_expert(lists, logit, p, runs, capacity, {.score = score, .select = select, .chosen_begin = begin});
    expect_consistent(lists, tally);
    expect_weights(lists, p, false);
    for (int64_t e = 0; e < 3; e++) {
      std::vector<float> column;
      for (int64_t s = 0; s < 41; s++) column.push_back(p[s * 3 + e]);
      for (int64_t r = 0; r + 1 < runs.size(); r++) {
        const int64_t k = capacity_rows(capacity, runs[r + 1] - runs[r]);
        for (const int32_t s : reference::top_k(column, runs[r], runs[r + 1], k))
          EXPECT_EQ(lists.taken(s, e), Taken::kExpert) << capacity << " " << e << " " << s;
      }
      EXPECT_EQ(lists.begin[e + 1] - lists.begin[e], 1 + capacity_rows(capacity, 17) + capacity_rows(capacity, 23));
    }
  }
}

TEST(ChooseAbove, EachTakesTheRowsThatItsLogitSays) {
  const Buffer logit = random_buffer({41, 3}, 1, 2), p = softmax_of(logit);
  for (const float depth : {0.0f, 0.5f, -1e30f, 1e30f}) {
    Lists lists(41, 3, 3);
    const ExpertTally tally = choose_above(lists, logit, p, {}, depth);
    expect_consistent(lists, tally);
    expect_weights(lists, p, false);
    for (int64_t i = 0; i < 41 * 3; i++)
      EXPECT_EQ(lists.taken(i / 3, i % 3), logit[i] + depth > 0 ? Taken::kExpert : Taken::kNot);
  }
}

TEST(ChooseAbove, EachExpertHasAnOffsetOfItsOwn) {
  const Buffer logit = random_buffer({41, 3}, 1, 2), p = softmax_of(logit);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float ends[] = {-kInfinity, 0.4f, kInfinity}, zero[] = {0, 0, 0};
  for (const float depth : {0.0f, -0.5f}) {
    Lists lists(41, 3, 3), plain(41, 3, 3), zeros(41, 3, 3);
    const ExpertTally tally = choose_above(lists, logit, p, CF32(ends, {3}), depth);
    expect_consistent(lists, tally);
    expect_weights(lists, p, false);
    for (int64_t s = 0; s < 41; s++) {
      EXPECT_EQ(lists.taken(s, 0), Taken::kNot);
      EXPECT_EQ(lists.taken(s, 1), logit[s * 3 + 1] + 0.4f + depth > 0 ? Taken::kExpert : Taken::kNot);
      EXPECT_EQ(lists.taken(s, 2), Taken::kExpert);
    }
    choose_above(plain, logit, p, {}, depth);
    choose_above(zeros, logit, p, CF32(zero, {3}), depth);
    EXPECT_EQ(plain.place.values, zeros.place.values);
    EXPECT_THROW(choose_above(lists, logit, p, CF32(zero, {2}), depth), Error);
  }
}

TEST(ExpertWeights, BackwardMatchesTheFormula) {
  const Buffer logit = random_buffer({37, 4}, 1, 2), p = softmax_of(logit);
  for (const int64_t per_row : {1, 2}) {
    Lists lists(37, 4, 4);
    const ExpertTally tally =
        choose_by_token(lists, logit, p, List{0, 37}, {.per_row = per_row, .capacity_factor = 0.6});
    ASSERT_GT(tally.dropped, 0);
    const Buffer dweight = random_buffer({tally.assigned}, 2);
    const auto taken = lists.taken();
    const auto want = reference::complex_step(to_double(p), [&](const Vec<Complex>& v) {
      Complex sum = 0;
      for (int64_t s = 0; s < 37; s++) {
        const Vec<Complex> row(v.begin() + s * 4, v.begin() + s * 4 + 4);
        const auto w = reference::expert_weights(row, taken[size_t(s)], per_row == 2);
        for (int64_t o = 0; o < 4; o++)
          if (lists.place[s * 4 + o] >= 0) sum += w[size_t(o)] * double(dweight[lists.place[s * 4 + o]]);
      }
      return sum;
    });
    Buffer dp({37, 4});
    expert_weights_backward(dp, dweight, p, lists.places(),
                            per_row == 2 ? ExpertWeight::kOverTheirSum : ExpertWeight::kRaw);
    expect_close(dp.values, want, 4 * max_abs(dweight), 4);
  }
}

TEST(ExpertChoice, RefusesWhatIsNotFiniteAndWhatDoesNotFit) {
  Buffer logit = random_buffer({4, 3}, 1);
  const Buffer p = softmax_of(logit);
  Lists lists(4, 3, 3), with_no_op(4, 2, 3);
  EXPECT_THROW(choose_by_token(with_no_op, logit, p, List{0, 4}, {.per_row = 2}), Error) << "two of one with no-ops";
  EXPECT_THROW(choose_by_token(lists, logit, p, List{0, 3}, {}), Error) << "a run short";
  EXPECT_THROW(choose_above(with_no_op, logit, p, {}, 0), Error);
  logit[7] = NAN;
  for (const auto& choose : {std::function<void()>([&] {
                               choose_by_token(lists, logit, p, List{0, 4}, {});
                             }),
                             std::function<void()>([&] { choose_above(lists, logit, p, {}, 0); })}) {
    try {
      choose();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kWork);
      EXPECT_NE(std::string(error.what()).find("row 2"), std::string::npos) << error.what();
    }
  }
}

TEST(ExpertChoice, OfNoRowsIsEmpty) {
  const Buffer none({0, 3});
  Lists lists(0, 3, 3);
  EXPECT_EQ(choose_by_token(lists, none, none, List{0, 0}, {}).assigned, 0);
  EXPECT_EQ(choose_above(lists, none, none, {}, 0).assigned, 0);
  EXPECT_EQ(lists.begin[3], 0);
}

}  // namespace
}  // namespace isobath
