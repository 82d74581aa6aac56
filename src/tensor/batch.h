// A batch is a flat list of token rows; a row has a sequence and a position. Padding does not exist: sequences may have
// any lengths, and a pad is not a row.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace isobath {

// What the tokens of a row's sequence are to each other: one sequence, or several documents packed into it.
enum class Scope : uint8_t { kSequence, kDocument };

struct Batch {
  CI32 token;                       // (N)
  CI32 target;                      // (N) the token to predict, -1: not scored; empty: nothing is scored
  CI32 position;                    // (N) within the attention segment, from 0
  CI32 capacity_begin;              // (sequences+1) runs of rows that share one top-k choice: sequences, or documents
  CI32 segment_begin;               // (segments+1) runs of rows that see each other: sequences, or documents
  CI32 sequence;                    // (N) index of the row's sequence in this batch
  View<const int64_t> sequence_id;  // (B) names of the sequences over the whole run, for counter-based randomness

  int64_t rows() const { return token.numel(); }
};

}  // namespace isobath
