// The list of buffers: what a forward pass leaves for the backward pass, and scratch. Planned from the config,
// allocated once. Buffers of routed blocks have S rows, not N: that is where the memory saving of the method becomes
// visible. MemoryOptions save more, for work.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "ops/bce.h"
#include "ops/expert_choice.h"
#include "tensor/arena.h"
#include "tensor/batch.h"

namespace isobath {

// The batches that a set of buffers can take.
struct BatchLimits {
  int64_t sequences = 1;      // B
  int64_t T = 1;              // rows of one sequence
  int64_t max_documents = 1;  // runs of one sequence, if it is cut into documents
  int64_t rows() const { return sequences * T; }
  int64_t runs() const { return sequences * max_documents; }
};

enum class Purpose : uint8_t {
  kTrain,    // every block keeps what backward needs; routed blocks have room for the top-k choice
  kForward,  // all blocks share one set of buffers, with room for any choice; MemoryOptions have no effect
};

// What a block keeps between its forward and its backward pass in training.
enum class Recompute : uint8_t {
  kNone,    // everything that backward reads
  kBlocks,  // its list and the list's rows only. All blocks share the other buffers; before a block's backward pass its
            // forward pass is run again on the same rows, and so with the same bits
};
template <>
inline constexpr std::array kNames<Recompute>{"none", "blocks"};

template <>
inline constexpr std::array kNames<Storage>{"f32", "bf16"};

struct MemoryOptions {
  Recompute recompute = Recompute::kNone;
  // Of what a forward pass leaves for the backward pass: saved, qkv, o, z, uv, delta. With bf16 the forward pass itself
  // goes on with the rounded numbers, so that gradients are those of what was computed. The residual stream, scores,
  // gradients and all arithmetic stay fp32.
  Storage storage = Storage::kF32;
  Packing packing = Packing::kStep;  // of the weights (model/weights.h); no buffer here depends on it
};

// Rows of a batch that a layer works on: all of them, or the ones that a router chose.
struct RowList {
  CI32 index;           // (S) rows of the batch, ascending; empty: all
  CI32 position;        // (S) for RoPE: the original positions
  CI32 segment_begin;   // (segments+1) runs of list rows that see each other
  int64_t rows = 0;     // S
  CI32 run_begin = {};  // (runs+1) runs of list rows that share capacities; experts have theirs of these
};

// Between the last score that top-k took of a run and the first that it left: what causal = threshold goes by.
struct Midpoints {
  double sum = 0;
  int64_t runs = 0;  // of those that had a row to leave
  Midpoints& operator+=(const Midpoints& other) {
    sum += other.sum, runs += other.runs;
    return *this;
  }
};

struct RouterActs {
  F32 score;                 // (N)
  F32 rstd;                  // (N) 1 / root mean square of the rows, with router_input = normed
  F32 logit;                 // (N) of the causal rule: routed iff above 0; empty without a rule
  F32 hidden;                // (N,P) training: of a predictor that looks back
  F32 dscore;                // (N) training: gradient of score; the auxiliary loss writes it, backward adds the gate's
  F32 gate, dgate;           // (S)
  I32 index;                 // (S)
  I32 position;              // (S)
  I32 segment_begin;         // (segments+1)
  I32 chosen_begin;          // (runs+1)
  RowList list;              // the choice of the last forward pass
  Agreement agreement;       // of the causal rule with that choice, if top-k made it
  int64_t dropped = 0;       // rows that wanted to be chosen and found no place (choice = token, in training)
  double auxiliary_sum = 0;  // binary cross-entropy summed over rows; with choice = token balance summed over runs
  double square_sum = 0;     // of the scores, in training with z_weight
  Midpoints midpoints;       // of the pass, in training with causal = threshold
};

// What the experts of a block were given. M assignments of rows to experts; O = E + Z outputs.
struct ExpertActs {
  F32 logit, p;              // (S,O)
  ExpertLists to;            // place (S,O), row and weight (M), begin (E+1)
  ExpertTally tally;         // of the last forward pass
  Agreement agreement;       // of experts_causal with the choice of training, if that was made; counts (row, expert)
  double balance_sum = 0;    // after a backward pass: the balance loss summed over runs,
  double imitation_sum = 0;  // and the rule's cross-entropy
};

// Of a section: half a block leaves the other half's empty.
struct SectionActs {
  Stored saved;  // (S,D) the rows' inputs
  F32 rstd1;     // (S)
  Stored qkv;    // (S,(H+2G)K) after RoPE; with cache = all (S,HK), the queries alone, and of all rows
  Stored kv;     // (N,2GK) after RoPE
  F32 rstd_all;  // (N)
  I32 seen;      // (S) how many keys of its segment each query sees; outlives the pass, as router does
  Stored o;      // (S,HK)
  F32 lse;       // (S,H)
  // (S,D) saved + attention's output, the second norm's input; empty in half a block, and in a forward pass without
  // experts
  Stored z;
  F32 rstd2;  // (S)
  Stored uv;  // (S,2F); with experts (M,2F), expert after expert, or in a forward pass one chunk's
  ExpertActs experts;
  Stored delta;  // (S,D) what the block adds before the gate: kept where the gate's gradient needs it, else empty
  RouterActs router;
  RowList list;  // of the last forward pass
};

// Rows of a list that go through the MLP together. What only lives within it, 3 F numbers a row, is there for so many
// rows and stays in cache between the products; they are as many as a weight gradient is summed over at a time.
inline constexpr int64_t kMlpRows = 512;

// Buffers in a line live together; those of a block's forward pass share memory with those of its backward pass, those
// of the attention half with those of the MLP half.
struct Scratch {
  F32 normed;        // (S,D)
  F32 a, m;          // (S,D) forward: outputs of attention and MLP
  F32 ddelta, dz2;   // (S,D) backward
  F32 dkeys;         // (N,D) backward with cache = all: gradient of the rows that keys are of
  F32 qkv;           // (S,(H+2G)K) attention half: products' fp32 form of a bf16 qkv; its gradient. Also of kv, q
  F32 o;             // (S,HK) attention half: products' fp32 form of a bf16 o; its gradient
  F32 h;             // (kMlpRows,F) MLP half
  F32 uv;            // (kMlpRows,2F) MLP half: products' fp32 form of a bf16 uv, and its gradient; empty if uv is fp32
  F32 rows, sums;    // (kMlpRows,D) MLP half with experts: of a chunk, what goes in and what comes out
  F32 partial;       // (kGradChunks, max(D, 2P+1)), with experts O D at least
  F32 dweight;       // (M) backward, with experts
  F32 dp, dlogit;    // (S,O) backward, with experts
  F32 column;        // (S) of choice = expert, one expert's p
  I32 chosen_begin;  // (runs+1) of the same
  F32 dpredicted;    // (N)
  F32 hidden;        // (N,P) of the predictor
  I32 select;        // (N)
  F32 logits;        // (chunk,V)
  F32 chunk_normed;  // (chunk,D)
  F32 chunk_rstd;    // (chunk)
};

class Activations {
 public:
  Activations(const ModelConfig& config, const BatchLimits& limits, Purpose purpose, Allocate allocate = Allocate::kYes,
              const MemoryOptions& memory = {});
  Activations(const Activations&) = delete;
  Activations& operator=(const Activations&) = delete;

  F32 x;                             // (N,D) the residual stream
  F32 dx;                            // (N,D)
  F32 loss, entropy;                 // (N) per row, nats
  F32 rope;                          // (positions,K)
  std::vector<SectionActs> section;  // by section
  Scratch scratch;

  const BatchLimits& limits() const { return limits_; }
  Purpose purpose() const { return purpose_; }
  const MemoryOptions& memory() const { return memory_; }
  bool recomputes() const { return memory_.recompute == Recompute::kBlocks; }
  const Plan& plan() const { return plan_; }
  int64_t section_bytes(int64_t l) const { return section_bytes_[size_t(l)]; }  // of buffers that are section l's alone
  std::vector<int64_t> list_sizes() const { return list_sizes_; }               // distinct S of the blocks, and N

 private:
  void plan_sections(const ModelConfig& config);
  void plan_saved(const ModelConfig& config, int64_t l);
  void plan_section(const ModelConfig& config, int64_t l);
  void plan_router(const ModelConfig& config, int64_t l);
  void plan_experts(const ModelConfig& config, int64_t l);
  void plan_expert_scratch(const ModelConfig& config, int64_t S);
  void plan_scratch(const ModelConfig& config);
  void plan_section_scratch(const ModelConfig& config);
  // A buffer of section l: an F32 or I32, or a Stored and its format.
  template <class V, class... Format>
  void add(int64_t l, const char* name, V& view, Shape shape, Format... format);
  bool blocks_share() const { return purpose_ == Purpose::kForward || recomputes(); }
  BatchLimits limits_;
  Purpose purpose_;
  MemoryOptions memory_;  // the defaults in a forward pass, which keeps nothing anyway
  std::vector<int64_t> list_sizes_, section_bytes_;
  Plan plan_;
  Arena arena_;
};

// Rows that a section is planned for: N for dense ones, the top-k choice for routed ones in training.
int64_t planned_rows(const ModelConfig& config, int64_t section, const BatchLimits& limits, Purpose purpose);
// The most assignments of rows to experts that a section's choice can make, whatever the rows are.
int64_t planned_assignments(const ModelConfig& config, int64_t section, const BatchLimits& limits, Purpose purpose);
// Rows of one chunk of the output head: enough for a full-speed product, few enough to keep logits small.
int64_t head_chunk(const ModelConfig& config, int64_t rows);
}  // namespace isobath
