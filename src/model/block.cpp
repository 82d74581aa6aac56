#include "model/block.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "ops/attention.h"
#include "ops/residual_add.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace isobath {
namespace {

// Appends the list's keys and values to the slots and attends to the slots.
void attend_to_cache(F32 o, CF32 qkv, const RowList& list, const Heads& heads, std::span<KvSlot> slots) {
  const int64_t kv = heads.kv_cols();
  constexpr int64_t kGroup = 64;  // segments per call: a fixed array, since nothing allocates inside a step
  CachedSegment group[kGroup];
  int64_t filled = 0;
  for (size_t s = 0; s < slots.size(); s++) {
    KvSlot& slot = slots[s];
    const int64_t begin = list.segment_begin[int64_t(s)], end = list.segment_begin[int64_t(s) + 1];
    if (begin == end) continue;
    require(slot.length + end - begin <= slot.capacity, "attention: a cache of {} rows cannot take {} more to its {}",
            slot.capacity, end - begin, slot.length);
    for (int64_t i = begin; i < end; i++) {
      const float* row = qkv.row(i) + heads.q_cols();
      std::copy(row, row + kv, slot.key + slot.length * kv);
      std::copy(row + kv, row + 2 * kv, slot.value + slot.length * kv);
      slot.position[slot.length++] = list.position[i];
    }
    group[filled++] = {begin, end - begin, slot.key, slot.value, slot.length};
    if (filled == kGroup) {
      attention_cached(o, qkv, {group, size_t(filled)}, heads);
      filled = 0;
    }
  }
  if (filled > 0) attention_cached(o, qkv, {group, size_t(filled)}, heads);
}

// From the first norm, which is in scratch.normed, to the MLP's first product: what block_backward reads.
void attention_and_gates(const BlockContext& c, BlockActs& b, std::span<KvSlot> slots) {
  const int64_t S = b.list.rows;
  const Heads heads = c.config.heads();
  const F32 normed = c.scratch.normed.slice(0, S), saved = b.saved.slice(0, S);
  const F32 qkv = b.qkv.slice(0, S), o = b.o.slice(0, S), a = b.a.slice(0, S);

  c.products.qkv.forward(qkv, normed);  // (S,(H+2G)K)
  rope_forward(qkv, b.list.position, c.rope, heads.H + heads.G);
  if (slots.empty())
    attention_forward(o, b.lse.empty() ? F32{} : b.lse.slice(0, S), qkv, b.list.segment_begin, heads);
  else
    attend_to_cache(o, qkv, b.list, heads, slots);  // (S,HK)
  c.products.o.forward(a, o);                       // (S,D)

  rmsnorm_forward(normed, b.rstd2.slice(0, S), {}, {.x = saved, .index = {}, .add = a}, c.weights.norm2,
                  float(c.config.rms_norm_eps));
  c.products.gate_up.forward(b.uv.slice(0, S), normed);  // (S,2F)
}

void mlp_output(const BlockContext& c, const BlockActs& b, F32 m) {
  const int64_t S = b.list.rows;
  const F32 h = c.scratch.h.slice(0, S);
  swiglu_forward(h, b.uv.slice(0, S));  // (S,F)
  c.products.down.forward(m, h);        // (S,D)
}

}  // namespace

Delta block_forward(const BlockContext& c, BlockActs& b, CF32 x, const RowList& list, std::span<KvSlot> slots) {
  const int64_t S = list.rows;
  b.list = list;
  const F32 a = b.a.slice(0, S), m = (b.m.empty() ? c.scratch.m : b.m).slice(0, S);
  if (S == 0) return {a, m};
  rmsnorm_forward(c.scratch.normed.slice(0, S), b.rstd1.slice(0, S), b.saved.slice(0, S),
                  {.x = x, .index = list.index, .add = {}}, c.weights.norm1, float(c.config.rms_norm_eps));
  attention_and_gates(c, b, slots);
  mlp_output(c, b, m);
  return {a, m};
}

void block_forward_again(const BlockContext& c, BlockActs& b) {
  const int64_t S = b.list.rows;
  if (S == 0) return;
  rmsnorm_forward(c.scratch.normed.slice(0, S), b.rstd1.slice(0, S), {},
                  {.x = b.saved.slice(0, S), .index = {}, .add = {}}, c.weights.norm1, float(c.config.rms_norm_eps));
  attention_and_gates(c, b, {});
  if (!b.m.empty()) mlp_output(c, b, b.m.slice(0, S));
}

Delta block_backward(const BlockContext& c, BlockActs& b, BlockWeights& g, F32 ddelta) {
  const int64_t S = b.list.rows;
  const Heads heads = c.config.heads();
  Scratch& s = c.scratch;
  const F32 partial = s.partial.reshaped({kGradChunks, c.config.hidden_size});
  const F32 normed = s.normed.slice(0, S), h = s.h.slice(0, S), dnormed = s.dnormed.slice(0, S);
  const F32 dz1 = s.dz1.slice(0, S), dz2 = s.dz2.slice(0, S), dqkv = s.dqkv.slice(0, S), dout = s.dout.slice(0, S);
  const CF32 saved = b.saved.slice(0, S), a = b.a.slice(0, S), o = b.o.slice(0, S);
  const F32 uv = b.uv.slice(0, S);
  if (S == 0) return {dz1, dz2};
  const RmsNormIn in1{.x = saved, .index = {}, .add = {}}, in2{.x = saved, .index = {}, .add = a};

  c.products.down.backward_input(h, ddelta);  // dh (S,F)
  swiglu_backward(uv, h, uv);                 // duv in place of uv; h is h again
  c.products.down.backward_weight(add_to(g.down), ddelta, h);
  c.products.gate_up.backward_input(dnormed, uv);
  rmsnorm_apply(normed, in2, c.weights.norm2, b.rstd2.slice(0, S));
  c.products.gate_up.backward_weight(add_to(g.gate_up()), uv, normed);
  rmsnorm_backward(dz2, add_to(g.norm2), dnormed, in2, c.weights.norm2, b.rstd2.slice(0, S), partial);
  scatter_add(ddelta, {}, dz2, {});  // da = ddelta + dz2

  c.products.o.backward_input(dout, ddelta);
  c.products.o.backward_weight(add_to(g.o), ddelta, o);
  attention_backward(dqkv, dout, b.qkv.slice(0, S), o, b.lse.slice(0, S), b.list.segment_begin, heads);
  rope_backward(dqkv, b.list.position, c.rope, heads.H + heads.G);
  c.products.qkv.backward_input(dnormed, dqkv);
  rmsnorm_apply(normed, in1, c.weights.norm1, b.rstd1.slice(0, S));
  c.products.qkv.backward_weight(add_to(g.qkv()), dqkv, normed);
  rmsnorm_backward(dz1, add_to(g.norm1), dnormed, in1, c.weights.norm1, b.rstd1.slice(0, S), partial);
  return {dz1, dz2};
}

}  // namespace isobath
