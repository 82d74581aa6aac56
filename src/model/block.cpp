#include "model/block.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "model/experts.h"
#include "model/mlp_chunks.h"
#include "ops/attention.h"
#include "ops/residual_add.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"
#include "ops/widen.h"

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

// From the first norm, which is in scratch.normed, to attention's output in scratch.a.
void attention_half(const BlockContext& c, BlockActs& b, std::span<KvSlot> slots) {
  const int64_t S = b.list.rows;
  const Heads heads = c.config.heads();
  const Stored qkv = b.qkv.slice(0, S), o = b.o.slice(0, S);
  const F32 wide_qkv = for_products(qkv, c.scratch.qkv), wide_o = for_products(o, c.scratch.o);
  c.products.qkv.forward(wide_qkv, c.scratch.normed.slice(0, S));  // (S,(H+2G)K)
  rope_forward(qkv, wide_qkv, b.list.position, c.rope, heads.H + heads.G);
  if (slots.empty())
    attention_forward(o, b.lse.empty() ? F32{} : b.lse.slice(0, S), qkv, b.list.segment_begin, heads);
  else
    attend_to_cache(o.as<float>(), qkv.as<float>(), b.list, heads, slots);  // (S,HK)
  if (o.storage == Storage::kBf16) widen(wide_o, o.as<Bf16>());
  c.products.o.forward(c.scratch.a.slice(0, S), wide_o);  // (S,D)
}

// The second norm's input.
CStored mlp_input(const BlockActs& b) { return (b.z.empty() ? b.saved : b.z).slice(0, b.list.rows); }

// From the second norm, which is in scratch.normed. m (S,D); left out: what block_backward reads, and no more.
void mlp_half(const BlockContext& c, BlockActs& b, F32 m) {
  const int64_t S = b.list.rows;
  const F32 normed = c.scratch.normed.slice(0, S);
  if (c.config.has_experts()) return experts_half(c, b, mlp_input(b), m);
  for_mlp_chunks(S, [&](int64_t begin, int64_t rows) {
    const Stored uv = b.uv.slice(begin, rows);
    const F32 wide_uv = for_products(uv, c.scratch.uv), h = c.scratch.h.slice(0, rows);
    c.products.gate_up.forward(wide_uv, normed.slice(begin, rows));  // (rows,2F)
    if (m.empty() && uv.storage == Storage::kF32) return;            // h is of no use, and uv is there unrounded
    swiglu_forward(h, uv, wide_uv);                                  // (rows,F)
    if (!m.empty()) c.products.down.forward(m.slice(begin, rows), h);
  });
}

// dz2 (S,D), the gradient of the second norm's input.
void mlp_backward_half(const BlockContext& c, BlockActs& b, BlockWeights& g, F32 ddelta, F32 dz2) {
  const int64_t S = b.list.rows;
  const Scratch& s = c.scratch;
  const F32 normed = s.normed.slice(0, S), rstd = b.rstd2.slice(0, S);
  const CStored z = mlp_input(b);
  if (c.config.has_experts()) {
    experts_backward_half(c, b, g, z, ddelta, dz2);
  } else {
    rmsnorm_apply(normed, z, c.weights.norm2, rstd);
    for_mlp_chunks(S, [&](int64_t begin, int64_t rows) {
      const Stored uv = b.uv.slice(begin, rows);
      const F32 duv = for_products(uv, s.uv), h = s.h.slice(0, rows), ddelta_rows = ddelta.slice(begin, rows);
      c.products.down.backward_input(h, ddelta_rows);  // dh (rows,F)
      swiglu_backward(duv, h, uv);                     // h is h again
      c.products.down.backward_weight(add_to(g.down), ddelta_rows, h);
      c.products.gate_up.backward_input(dz2.slice(begin, rows), duv);
      c.products.gate_up.backward_weight(add_to(g.gate_up()), duv, normed.slice(begin, rows));
    });
  }
  rmsnorm_backward(dz2, add_to(g.norm2), dz2, z, c.weights.norm2, rstd,
                   s.partial.reshaped({kGradChunks, c.config.hidden_size}));
}

// dz1 (S,D) from da, which it may overwrite.
void attention_backward_half(const BlockContext& c, const BlockActs& b, BlockWeights& g, F32 dz1, F32 da) {
  const int64_t S = b.list.rows;
  const Heads heads = c.config.heads();
  const Scratch& s = c.scratch;
  const F32 normed = s.normed.slice(0, S), dqkv = s.qkv.slice(0, S), dout = s.o.slice(0, S);
  const F32 rstd = b.rstd1.slice(0, S), wide_o = for_products(b.o.slice(0, S), s.o);
  const CStored saved = b.saved.slice(0, S), o = b.o.slice(0, S);
  if (o.storage == Storage::kBf16) widen(wide_o, o.as<Bf16>());
  c.products.o.backward_weight(add_to(g.o), da, wide_o);
  c.products.o.backward_input(dout, da);  // where wide_o may have been
  attention_backward(dqkv, dout, b.qkv.slice(0, S), o, b.lse.slice(0, S), b.list.segment_begin, heads);
  rope_backward(dqkv, b.list.position, c.rope, heads.H + heads.G);
  c.products.qkv.backward_input(dz1, dqkv);
  rmsnorm_apply(normed, saved, c.weights.norm1, rstd);
  c.products.qkv.backward_weight(add_to(g.qkv()), dqkv, normed);
  rmsnorm_backward(dz1, add_to(g.norm1), dz1, saved, c.weights.norm1, rstd,
                   s.partial.reshaped({kGradChunks, c.config.hidden_size}));
}

}  // namespace

namespace {

F32 of_list(F32 scratch, const BlockActs& b) { return scratch.slice(0, b.list.rows); }
Stored of_list(const Stored& kept, const BlockActs& b) { return kept.empty() ? kept : kept.slice(0, b.list.rows); }

// The norm before the section's first half, of x's listed rows.
void first_norm(const BlockContext& c, BlockActs& b, const RmsNormIn& in, Stored saved) {
  const bool attention = c.section.attention();
  rmsnorm_forward(of_list(c.scratch.normed, b), of_list(attention ? b.rstd1 : b.rstd2, b), saved, in,
                  attention ? c.weights.norm1 : c.weights.norm2, float(c.config.rms_norm_eps));
}

// The norm between the halves of a whole block, of x + a.
void second_norm(const BlockContext& c, BlockActs& b) {
  rmsnorm_forward(of_list(c.scratch.normed, b), of_list(b.rstd2, b), of_list(b.z, b),
                  {.x = of_list(b.saved, b), .index = {}, .add = of_list(c.scratch.a, b)}, c.weights.norm2,
                  float(c.config.rms_norm_eps));
}

// From the first norm on. With `m` left out, the MLP's last product is.
void run_halves(const BlockContext& c, BlockActs& b, std::span<KvSlot> slots, F32 m) {
  if (c.section.attention()) attention_half(c, b, slots);
  if (c.section.part == Part::kBlock) second_norm(c, b);
  if (c.section.mlp()) mlp_half(c, b, m);
}

Delta delta_of(const BlockContext& c, const BlockActs& b) {
  const F32 a = of_list(c.scratch.a, b), m = of_list(c.scratch.m, b);
  return {c.section.attention() ? a : m, c.section.part == Part::kBlock ? m : F32{}};
}

}  // namespace

Delta block_forward(const BlockContext& c, BlockActs& b, CF32 x, const RowList& list, std::span<KvSlot> slots) {
  b.list = list;
  if (c.config.has_experts() && c.section.mlp()) choose_no_experts(b.experts);
  if (list.rows > 0) {
    first_norm(c, b, {.x = x, .index = list.index, .add = {}}, of_list(b.saved, b));
    run_halves(c, b, slots, of_list(c.scratch.m, b));
  }
  return delta_of(c, b);
}

void block_forward_again(const BlockContext& c, BlockActs& b) {
  if (b.list.rows == 0) return;
  first_norm(c, b, {.x = of_list(b.saved, b), .index = {}, .add = {}}, {});
  if (b.delta.empty()) return run_halves(c, b, {}, {});
  run_halves(c, b, {}, of_list(c.scratch.m, b));
  const Delta sum = delta_of(c, b);
  residual_add_forward({}, of_list(b.delta, b), {}, {}, sum.first, sum.second);
}

Delta block_backward(const BlockContext& c, BlockActs& b, BlockWeights& g, F32 ddelta) {
  const F32 dz1 = ddelta, dz2 = of_list(c.scratch.dz2, b);
  const bool whole = c.section.part == Part::kBlock;
  const Delta dx = whole ? Delta{dz1, dz2} : Delta{c.section.attention() ? dz1 : dz2, {}};
  if (b.list.rows == 0) return dx;
  if (c.section.mlp()) mlp_backward_half(c, b, g, ddelta, dz2);
  if (whole) scatter_add(ddelta, {}, dz2, {});  // da: attention's output reaches delta, and the MLP
  if (c.section.attention()) attention_backward_half(c, b, g, dz1, ddelta);
  return dx;
}

}  // namespace isobath
