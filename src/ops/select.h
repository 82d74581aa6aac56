// Choosing rows. Deterministic, exact counts, ascending positions.
//
// capacity_rows:  k = max(1, floor(C * T + 1e-9)) in float64, 0 for an empty sequence, T for C = 1.
// select_top_k:   per sequence s the k_s rows with the largest score; ties go to the earlier row.
// spaced:         row p, counted from the first of its sequence, is chosen iff
//                   floor((p+1) C + 1e-9) > floor(p C + 1e-9):  floor(C T + 1e-9) rows of T, a row on its own
// select_spaced:  per sequence its spaced rows.
// select_above:   per sequence every row with score + offset > 0 (the causal rules); any count from 0 to T.
// select_token:   the same with offset 0, but at most k_s rows, the earliest; dropped: how many more there were.
// All write the chosen rows in ascending order to index, and where each sequence's run begins to chosen_begin.
// score (N)   sequence_begin (B+1), first 0, last N   index (at least the sum of k, or N)   chosen_begin (B+1)
// scratch (N) int32.   Returns the number of rows chosen. Throws Error naming the row if a score is NaN or
// infinite; select_above takes infinite ones.
#pragma once

#include "tensor/view.h"

namespace isobath {

int64_t capacity_rows(double capacity, int64_t sequence_rows);
bool spaced(double capacity, int64_t p);
int64_t spaced_rows(double capacity, int64_t sequence_rows);
int64_t select_spaced(I32 index, I32 chosen_begin, CI32 sequence_begin, double capacity);
int64_t select_top_k(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, double capacity, I32 scratch);
int64_t select_above(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, float offset);
int64_t select_token(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, double capacity, int64_t& dropped);

}  // namespace isobath
