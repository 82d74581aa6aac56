#include <gtest/gtest.h>

#include "model/selection_rule.h"

// Top-k that keeps its distance: a row beside one that is chosen already is taken only when no other row is left.
void spread(std::span<int32_t> chosen, const isobath::ScoredRun& run) {
  const int32_t T = int32_t(run.score.size());
  enum : int32_t { kFree, kBeside, kTaken };
  std::fill(run.scratch.begin(), run.scratch.end(), kFree);
  for (int32_t& pick : chosen) {
    pick = -1;
    for (int32_t i = 0; i < T; i++) {
      if (run.scratch[i] == kTaken) continue;
      const bool better = pick < 0 || run.scratch[i] < run.scratch[pick] ||
                          (run.scratch[i] == run.scratch[pick] && run.score[i] > run.score[pick]);
      if (better) pick = i;
    }
    run.scratch[pick] = kTaken;
    for (const int32_t i : {pick - 1, pick + 1})
      if (i >= 0 && i < T && run.scratch[i] == kFree) run.scratch[i] = kBeside;
  }
}

TEST(Spread, TakesNeighboursLast) {
  const float score[] = {3, 9, 8, 1, 2};
  const int32_t position[] = {0, 1, 2, 3, 4};
  int32_t scratch[5], chosen[4];
  spread(chosen, {.score = score, .position = position, .scratch = scratch});
  EXPECT_EQ(std::vector(chosen, chosen + 4), (std::vector<int32_t>{1, 4, 2, 0}));
}
