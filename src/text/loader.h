// Batches of rows from a stream of tokens, a pure function of (seed, index of the sequence in the run): there is no
// position to save but a count.
//
// Scope kSequence: a sequence is T consecutive tokens, document boundaries are ordinary tokens. Each pass over the text
// starts at another offset in [0, T) and visits its windows in another order, both from the seed.
// Scope kDocument: the same windows, but documents inside are capacity and/or attention segments of their own. With
// kDocument attention, positions restart and the target across a boundary is not scored. A window with more than
// max_documents documents ends at the last one that fits: the sequence is shorter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tensor/batch.h"
#include "text/corpus.h"

namespace isobath {

struct LoaderOptions {
  int64_t T = 256;  // tokens per sequence
  int64_t B = 8;    // sequences per batch
  uint64_t seed = 1;
  Scope capacity_scope = Scope::kSequence, attention_scope = Scope::kSequence;
  int64_t max_documents = 0;  // 0: max(1, T/64)

  int64_t most_documents() const { return max_documents > 0 ? max_documents : std::max<int64_t>(1, T / 64); }
};

class Loader {
 public:
  // Throws Error if the stream is shorter than two tokens; train() if it is shorter than T + 1.
  Loader(TokenStream stream, const LoaderOptions& options);

  // Sequences [first, first + count) of the run, count <= B. Valid until the next call. Allocates nothing.
  const Batch& train(int64_t first, int64_t count);
  int64_t sequences_per_pass() const { return windows_; }
  // What train(first, count) would hold, for any count, without making it.
  struct Count {
    int64_t rows, targets;  // targets: that are scored
    int64_t runs;           // of rows that share capacity
  };
  Count train_count(int64_t first, int64_t count) const;
  // Of the rows of one pass over the text; below 1 where windows end at max_documents.
  double share_seen() const;

  // Evaluation: windows of T in order from the start of the stream, each beginning without context. Each token but the
  // first is a target once (with kDocument attention: but the first of each document); the last window is shorter.
  int64_t eval_sequences() const;
  // Windows first to first + count - 1 of `part` ones that are spread evenly over the stream; 0: of all. A part at the
  // beginning would be one chapter.
  const Batch& eval(int64_t first, int64_t count, int64_t part = 0);

  static int64_t scored_targets(const Batch& batch);

 private:
  struct Window {
    int64_t begin, end;  // tokens [begin, end), targets [begin + 1, end + 1)
  };
  bool by_document() const;
  Window train_window(int64_t index) const;  // cut at documents
  Window cut_at_documents(Window window) const;
  Window eval_window(int64_t index) const;
  const Batch& fill(int64_t first, int64_t count, bool training, int64_t part);
  int64_t append(Window window, int64_t row, int32_t sequence);

  TokenStream stream_;
  LoaderOptions options_;
  int64_t windows_ = 0;              // in one pass of training
  std::vector<int64_t> eval_begin_;  // with documents: where evaluation windows begin, and the end
  std::vector<int32_t> token_, target_, position_, sequence_, capacity_begin_, segment_begin_;
  std::vector<int64_t> sequence_id_;
  int64_t capacities_ = 0, segments_ = 0;  // runs in the batch so far
  Batch batch_;
};

}  // namespace isobath
