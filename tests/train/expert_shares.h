// What the experts of a step may have been given, as their options say.
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "model/config.h"
#include "ops/select.h"
#include "train/evaluate.h"

namespace isobath::testing {

// l: of a pass in training, over `rows` rows of B capacity runs. Runs of equal length where experts choose, or take no
// more than a capacity.
inline void expect_shares_as_configured(const LayerExperts& l, const ExpertsConfig& e, int64_t rows, int64_t B) {
  EXPECT_EQ(l.rows, rows);
  const int64_t run = rows / B;
  for (const int64_t n : l.expert_rows) {
    if (e.choice == Choice::kExpert) {
      EXPECT_EQ(n, B * capacity_rows(e.capacity, run));
    }
    if (e.capacity_factor > 0) {
      EXPECT_LE(n, B * int64_t(std::ceil(e.capacity_factor * double(e.per_token * run) / double(e.experts) - 1e-9)));
    }
  }
  if (e.choice == Choice::kToken) {
    EXPECT_EQ(l.assigned() + l.dropped + l.no_ops, rows * e.per_token);
  }
  if (e.choice == Choice::kToken && e.capacity_factor == 0) {
    EXPECT_EQ(l.dropped, 0);
  }
  if (e.no_ops == 0) {
    EXPECT_EQ(l.no_ops, 0);
  }
  if (e.no_op_capacity > 0) {
    EXPECT_LE(l.no_ops, B * int64_t(e.no_op_capacity * double(run) + 1e-9));
  }
}

}  // namespace isobath::testing
