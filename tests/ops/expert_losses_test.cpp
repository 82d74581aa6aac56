#include "ops/expert_losses.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/gradient.h"
#include "support/experts.h"

namespace isobath {
namespace {
using namespace testing;
using reference::Complex;
using reference::Vec;

constexpr int64_t kRows = 30, kOutputs = 4;
const List kRuns{0, 7, 7, 8, 30};

template <class T>
std::vector<Vec<T>> rows_of(const Vec<T>& flat) {
  std::vector<Vec<T>> rows;
  for (size_t i = 0; i < flat.size(); i += size_t(kOutputs))
    rows.emplace_back(flat.begin() + long(i), flat.begin() + long(i) + long(kOutputs));
  return rows;
}

// f(begin, end) summed over the runs that have rows
template <class F>
auto over_runs(F f) {
  decltype(f(size_t(0), size_t(0))) sum = 0;
  for (int64_t r = 0; r + 1 < kRuns.size(); r++)
    if (kRuns[r] < kRuns[r + 1]) sum += f(size_t(kRuns[r]), size_t(kRuns[r + 1]));
  return sum;
}

TEST(ExpertBalanceLoss, MatchesTheFormula) {
  const Buffer logit = random_buffer({kRows, kOutputs}, 1), p = softmax_of(logit);
  std::vector<size_t> first;
  for (const auto& row : table_of(logit)) first.push_back(reference::ranked(row)[0]);
  const auto loss = [&](const auto& v) {
    const auto rows = rows_of(v);
    return over_runs([&](size_t begin, size_t end) { return reference::balance(rows, first, begin, end); });
  };
  Buffer dp({kRows, kOutputs}, 10);
  EXPECT_NEAR(expert_balance_loss(add_to(dp), logit, p, kRuns, 0.3f), loss(to_double(p)), 1e-6);
  auto want = reference::complex_step(to_double(p), [&](const Vec<Complex>& v) { return 0.3 * loss(v); });
  for (double& v : want) v += 10;
  expect_close(dp.values, want, 10, 1);
}

// Even use of all outputs has loss 1 per run; all on one, O.
TEST(ExpertBalanceLoss, IsOneWhereOutputsAreUsedEvenly) {
  Buffer logit({4, 4}, 0), dp({4, 4}, 0), p({4, 4}, 0.25f);
  for (int64_t i = 0; i < 4; i++) logit[i * 5] = 1;
  EXPECT_DOUBLE_EQ(expert_balance_loss(add_to(dp), logit, p, List{0, 4}, 1), 1);
  for (int64_t i = 0; i < 16; i++) logit[i] = p[i] = i % 4 == 0;
  EXPECT_DOUBLE_EQ(expert_balance_loss(add_to(dp), logit, p, List{0, 4}, 1), 4);
}

TEST(ExpertImitationLoss, MatchesTheFormulaAndCounts) {
  const Buffer logit = random_buffer({kRows, kOutputs}, 1, 2), p = softmax_of(logit);
  Lists lists(kRows, kOutputs, kOutputs);
  Buffer score({kRows}), dlogit({kRows, kOutputs}, 10);
  List select(kRows), begin(kRuns.size());
  choose_by_expert(lists, logit, p, kRuns, 0.3, {.score = score, .select = select, .chosen_begin = begin});
  const auto taken = lists.taken();
  const auto loss = [&](const auto& v) {
    const auto rows = rows_of(v);
    return over_runs([&](size_t from, size_t to) { return reference::imitation(rows, taken, from, to); });
  };
  Agreement agreement;
  EXPECT_NEAR(expert_imitation_loss(add_to(dlogit), agreement, logit, lists.places(), kRuns, 0.3f),
              loss(to_double(logit)), 1e-6);
  auto want = reference::complex_step(to_double(logit), [&](const Vec<Complex>& v) { return 0.3 * loss(v); });
  for (double& v : want) v += 10;
  expect_close(dlogit.values, want, 10, 1);
  int64_t said = 0, chosen = 0, both = 0;
  for (int64_t i = 0; i < kRows * kOutputs; i++) {
    said += logit[i] > 0;
    chosen += lists.place[i] >= 0;
    both += logit[i] > 0 && lists.place[i] >= 0;
  }
  EXPECT_EQ(agreement.rows, kRows * kOutputs);
  EXPECT_EQ(agreement.said, said);
  EXPECT_EQ(agreement.chosen, chosen);
  EXPECT_EQ(agreement.both, both);
}

TEST(ExpertLosses, RefuseWrongShapes) {
  const Buffer logit({kRows, kOutputs}, 0);
  Buffer dp({kRows, 3}, 0), right({kRows, kOutputs}, 0);
  EXPECT_THROW(expert_balance_loss(add_to(dp), logit, logit, kRuns, 1), Error);
  EXPECT_THROW(expert_balance_loss(add_to(right), logit, logit, List{0, 7}, 1), Error);
}

}  // namespace
}  // namespace isobath
