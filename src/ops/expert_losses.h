// What an expert router learns beside the language model's loss. Plain code in float64: a few numbers per row, rows in
// order. Of each run of T rows (run_begin), so that the runs of a batch do not matter to each other:
//   balance:  L = scale * sum_runs O sum_o f_o P_o,   dp[s,o] += scale * O f_o / T
//             f_o share of the run's rows whose best score is o's (the lower of equals), P_o mean of p[s,o]
//   imitate:  L = scale * sum_runs mean_{s,e} BCE(sigmoid(logit[s,e]), [place[s,e] >= 0]),
//             dlogit[s,e] += scale * (sigmoid - target) / (T E)
// logit, p (S,O)   place (S,O) of expert_choice.h; with imitate every output is an expert. A run without rows adds 0.
// Returns the unscaled sum over runs; `agreement` counts pairs of row and expert for the rule logit > 0.
// Source: Fedus et al. 2021, arXiv:2101.03961, eq. 4 (balance); Raposo et al. 2024, arXiv:2404.02258 (imitate).
#pragma once

#include "ops/bce.h"
#include "tensor/view.h"

namespace isobath {

double expert_balance_loss(Accum dp, CF32 logit, CF32 p, CI32 run_begin, float scale);
double expert_imitation_loss(Accum dlogit, Agreement& agreement, CF32 logit, CI32 place, CI32 run_begin, float scale);

}  // namespace isobath
