// What a routing rule consists of. selection.cpp puts the parts together; a rule is one case in each function here.
#pragma once

#include "model/selection.h"

namespace isobath {

// The router's score of every row, into r.score.
void score_rows(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch, const Selection& how);

// Logits of the causal rule, into r.logit: routed iff logit + rule_depth > 0. Of each row on its own.
//   bce r    token choice r    predictor its own logit    threshold r - t    random r - quantile(1 - C)
//   first    (k - p - 1/2) / P          spaced C - ((p+1) C mod 1)      in shares of the rows, so that depth d adds d
// p is the row's position, P = max_position_embeddings, k = max(1, floor(C P)).
void rule_logits(const RouterContext& c, RouterActs& r, CF32 x, const Batch& batch);
// `depth`, and of a calibrated model its offset. What a rule learns knows of neither.
float rule_depth(const RouterContext& c, float depth);

// The rows that training chooses, into r.index and r.chosen_begin, and r.dropped; how many. Throws Error naming the row
// if a score is not finite.
int64_t choose_for_training(const RouterContext& c, RouterActs& r, int64_t N, const Batch& batch);

}  // namespace isobath
