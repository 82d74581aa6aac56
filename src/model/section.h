// A Llama block over a list of rows, without its residual: the router, if there is one, never reaches in here.
//   a = Attn(norm1(x_list)),  m = MLP(norm2(x_list + a)),  delta = a + m        (docs/design.md)
// Half a block: delta = a, or delta = m = MLP(norm2(x_list)). With cache = all, queries are of the list and keys and
// values of norm1 of all rows.
#pragma once

#include "model/activations.h"
#include "model/kv.h"
#include "model/selection.h"
#include "model/weights.h"

namespace isobath {

// What a layer adds to its rows: first + second, second may be empty.
struct Delta {
  F32 first, second;  // (S,D)
};

struct SectionContext {
  const ModelConfig& config;
  Section section;
  const SectionWeights& weights;
  const SectionProducts& products;
  CF32 rope;
  Scratch& scratch;
  const Batch& batch;
  Selection how = {};           // by which experts choose rows
  double expert_run_scale = 0;  // in training: 1 / (blocks with experts * capacity runs of the optimizer step)
};

// x (N,D), list.rows = S. With a cache, the rows' keys and values are appended to their sequence's slot (one segment
// per slot) and attention reads the slots; without, it reads the list's own keys.
Delta section_forward(const SectionContext& c, SectionActs& b, CF32 x, const RowList& list, const KvLayer& cache);

// With Recompute::kBlocks, before section_backward: the buffers of the block's last section_forward again, to the bit,
// from b.saved and b.list, and the x (N,D) of then where cache = all. What backward does not read is left out: the
// MLP's second product of a block without b.delta.
void section_forward_again(const SectionContext& c, SectionActs& b, CF32 x);

// delta's gradient in, which it may overwrite; gradients of x_list out as two summands, of which the second may be
// empty; weight gradients are added. With cache = all, x (N,D) is that of forward, and the gradient through keys and
// values is added to dx (N,D).
Delta section_backward(const SectionContext& c, SectionActs& b, SectionWeights& gradient, F32 ddelta, CF32 x, F32 dx);

}  // namespace isobath
