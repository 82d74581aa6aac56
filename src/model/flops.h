// Two counts of work, never mixed (docs/design.md). A multiply-add is 2 FLOPs.
#pragma once

#include <cstdint>
#include <vector>

#include "model/activations.h"
#include "model/config.h"
#include "tensor/batch.h"

namespace isobath {

// Rows that training chooses of a capacity run: k; all in a dense section.
int64_t chosen_rows(const ModelConfig& config, const Section& section, int64_t run_rows);

// Of these rows how often experts are run in training, 0 without experts: each for each of its rows. Of token choice
// with dropping, and with no-ops, the most that there can be: which rows are dropped or skip is up to them.
int64_t chosen_expert_rows(const ModelConfig& config, int64_t rows);

// Model FLOPs: every matrix product of the forward pass; attention over n rows counts n*n, not halved. What budgets and
// isoFLOP curves use. Integers: exact.
struct SectionFlops {
  int64_t rows = 0;         // rows that go through the section, summed over sequences
  int64_t projections = 0;  // q, k, v, o
  int64_t attention = 0;    // scores and mix
  int64_t mlp = 0;
  int64_t router = 0;  // router and predictor, over all rows, and the router of experts over the block's
  int64_t total() const { return projections + attention + mlp + router; }
};
struct ModelFlops {
  std::vector<SectionFlops> section;  // by section
  int64_t head = 0;
  int64_t forward() const;
  int64_t training() const { return 3 * forward(); }
};
// Of a batch whose runs are known: `capacity_begin` says what competes for capacity, `segment_begin` what attends.
// Routed blocks count the top-k choice, k of each capacity run, and their attention k*k of each capacity run. Where
// capacity_scope is not attention_scope that is a convention: how a run's k rows fall into segments depends on the
// choice.
ModelFlops model_flops(const ModelConfig& config, CI32 capacity_begin, CI32 segment_begin);
// Of `sequences` whole sequences of T tokens.
ModelFlops model_flops(const ModelConfig& config, int64_t sequences, int64_t T);

// FLOPs of one training step by the convention of utilisation figures: attention's causal half, no router, no
// recompute, 3 x forward. The share of peak that is printed is this over time and peak.
int64_t utilisation_flops(const ModelConfig& config, int64_t sequences, int64_t T);

// Multiply-adds that the kernels will have executed for one pass over a batch whose choice is in acts: equal to
// what they count, to the unit.
struct ExecutedCount {
  int64_t forward = 0, backward = 0;
  int64_t total() const { return forward + backward; }
  ExecutedCount& operator+=(const ExecutedCount& other) {
    forward += other.forward;
    backward += other.backward;
    return *this;
  }
};
// Of one section that runs over `list` (its rows and segment_begin are read; with cache = all also how many keys its
// queries have `seen`) of a batch of N rows, its experts over `expert_rows` rows together, and of the output head.
// Backward includes the forward products that are run again.
ExecutedCount executed_section(const ModelConfig& config, const Section& section, int64_t N, const RowList& list,
                               const MemoryOptions& memory, CI32 seen = {}, int64_t expert_rows = 0);
ExecutedCount executed_head(const ModelConfig& config, int64_t N);
ExecutedCount executed_count(const ModelConfig& config, const Activations& acts, const Batch& batch);

// Steps that a budget buys, and the sequences of the last one (0: whole): under 1,000 steps the last batch shrinks, so
// that the total is within 0.1% of the budget or within half a sequence of it.
struct Budget {
  int64_t steps = 0;
  int64_t last_sequences = 0;
  double flops = 0;  // what the run will have spent
  // Of the whole run, `batch` a step.
  int64_t sequences(int64_t batch) const { return steps * batch - (last_sequences > 0 ? batch - last_sequences : 0); }
};
// Throws Error if the budget is less than one sequence, or 1e15 sequences and more.
Budget plan_budget(const ModelConfig& config, int64_t sequences, int64_t T, double flops);

// Bytes of keys and values per token, fp32, at the planned share, and of the dense twin.
double kv_bytes_per_token(const ModelConfig& config);

}  // namespace isobath
