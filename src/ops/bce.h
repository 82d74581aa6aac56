// Binary cross-entropy on logits, for rules that imitate the top-k choice.
//   loss = scale * sum_n ( softplus(r[n]) - target[n] r[n] ),   dr[n] += scale * (sigmoid(r[n]) - target[n])
// with target[n] = 1 for the rows listed in index, 0 for the others. r, dr (N)   index (S) ascending.
// Takes logits once: no sigmoid before it. Returns the unscaled sum of the loss in float64 (fixed chunks of rows, in
// order) and sets `agreement` to the counts of the rule r > 0 against the targets. A logit that is not finite gives a
// NaN loss. Throws Error if index is not ascending within [0, N).
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace isobath {

struct Agreement {
  int64_t rows = 0, chosen = 0, said = 0, both = 0;  // all rows, top-k's, the rule's, rows that both chose
  double accuracy() const { return rows ? double(rows - chosen - said + 2 * both) / double(rows) : 0; }
  double precision() const { return said ? double(both) / double(said) : 0; }
  double recall() const { return chosen ? double(both) / double(chosen) : 0; }
  double base_rate() const { return rows ? double(rows - chosen) / double(rows) : 0; }  // of "always skip"
  double share() const { return rows ? double(said) / double(rows) : 0; }
  Agreement& operator+=(const Agreement& other) {
    rows += other.rows, chosen += other.chosen, said += other.said, both += other.both;
    return *this;
  }
};

// dr empty: loss and counts only.
double bce_with_logits(Accum dr, Agreement& agreement, CF32 r, CI32 index, float scale);

}  // namespace isobath
