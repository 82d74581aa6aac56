#include "model/section.h"

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

// Appends keys and values of rows, run by run, to the slots. A row of kv begins with G*K keys, then G*K values.
void append_to_cache(const KvLayer& cache, CF32 kv, const float* first, CI32 position, CI32 begin, const Heads& heads) {
  for (size_t s = 0; s < cache.slots.size(); s++)
    for (int64_t i = begin[int64_t(s)]; i < begin[int64_t(s) + 1]; i++) {
      const float* key = first + i * kv.cols();
      cache.append(cache.slots[s], position[i], key, key + heads.kv_cols());
    }
}

// Attends to the slots. q (S, ...) begins with the queries; seen: as CachedSegment's, or empty.
void attend_to_cache(F32 o, CF32 q, const RowList& list, CI32 seen, const Heads& heads, const KvLayer& cache) {
  const KvPages& pages = cache.pool->memory();
  constexpr int64_t kGroup = 64;  // segments per call: a fixed array, since nothing allocates inside a step
  CachedSegment group[kGroup];
  int64_t filled = 0;
  for (size_t s = 0; s < cache.slots.size(); s++) {
    const KvSlot& slot = cache.slots[s];
    const int64_t begin = list.segment_begin[int64_t(s)], end = list.segment_begin[int64_t(s) + 1];
    if (begin == end) continue;
    group[filled++] = {begin, end - begin, slot.page, slot.length, seen.empty() ? nullptr : seen.data + begin};
    if (filled == kGroup) {
      attention_cached(o, q, {group, size_t(filled)}, pages, heads);
      filled = 0;
    }
  }
  if (filled > 0) attention_cached(o, q, {group, size_t(filled)}, pages, heads);
}

// Parts of scratch.qkv where the queries are of the list and the keys of all rows.
F32 wide_kv_of(const SectionContext& c, int64_t N) { return {c.scratch.qkv.data, {N, 2 * c.config.heads().kv_cols()}}; }
F32 wide_q_of(const SectionContext& c, int64_t S, int64_t N) {
  const Heads heads = c.config.heads();
  return {c.scratch.qkv.data + N * 2 * heads.kv_cols(), {S, heads.q_cols()}};
}
F32 of_format(const Stored& kept, F32 stand_in) { return kept.storage == Storage::kF32 ? kept.as<float>() : stand_in; }

// cache = all: keys and values of every row of x, into b.kv and the slots; b.seen.
void keys_of_all_rows(const SectionContext& c, SectionActs& b, CF32 x, const KvLayer& cache) {
  const int64_t N = x.rows();
  const Heads heads = c.config.heads();
  const Stored kv = b.kv.slice(0, N);
  const F32 normed = c.scratch.normed.slice(0, N), wide_kv = of_format(kv, wide_kv_of(c, N));
  rmsnorm_forward(normed, b.rstd_all.slice(0, N), {}, {.x = x, .index = {}, .add = {}}, c.weights.norm1,
                  float(c.config.rms_norm_eps));
  c.products.kv.forward(wide_kv, normed);  // (N,2GK)
  rope_forward(kv, wide_kv, c.batch.position, c.rope, heads.G);
  if (!cache.empty())
    append_to_cache(cache, kv.as<float>(), kv.as<float>().data, c.batch.position, c.batch.segment_begin, heads);
  const CI32 begin = b.list.segment_begin, all_begin = c.batch.segment_begin;
  for (int64_t g = 0; b.list.rows > 0 && g + 1 < begin.numel(); g++) {
    const int64_t rows = all_begin[g + 1] - all_begin[g];
    const int64_t before = cache.empty() ? 0 : cache.slots[size_t(g)].length - rows;  // of earlier passes
    for (int64_t s = begin[g]; s < begin[g + 1]; s++) b.seen[s] = int32_t(before + b.list.index[s] - all_begin[g] + 1);
  }
}

// From the first norm, which is in scratch.normed, to attention's output in o.
void attention_over_all(const SectionContext& c, SectionActs& b, const KvLayer& cache, Stored o) {
  const int64_t S = b.list.rows, N = c.batch.rows();
  const Heads heads = c.config.heads();
  const Stored q = b.qkv.slice(0, S);
  const F32 wide_q = of_format(q, wide_q_of(c, S, N));
  const CI32 seen = b.seen.slice(0, S);
  c.products.q.forward(wide_q, c.scratch.normed.slice(0, S));  // (S,HK)
  rope_forward(q, wide_q, b.list.position, c.rope, heads.H);
  if (!cache.empty()) return attend_to_cache(o.as<float>(), q.as<float>(), b.list, seen, heads, cache);
  attention_over_forward(o, b.lse.empty() ? F32{} : b.lse.slice(0, S), q, b.kv.slice(0, N), b.list.segment_begin,
                         c.batch.segment_begin, seen, heads);
}

void attention_over_list(const SectionContext& c, SectionActs& b, const KvLayer& cache, Stored o) {
  const int64_t S = b.list.rows;
  const Heads heads = c.config.heads();
  const Stored qkv = b.qkv.slice(0, S);
  const F32 wide_qkv = for_products(qkv, c.scratch.qkv);
  c.products.qkv.forward(wide_qkv, c.scratch.normed.slice(0, S));  // (S,(H+2G)K)
  rope_forward(qkv, wide_qkv, b.list.position, c.rope, heads.H + heads.G);
  if (cache.empty())
    return attention_forward(o, b.lse.empty() ? F32{} : b.lse.slice(0, S), qkv, b.list.segment_begin, heads);
  const F32 rows = qkv.as<float>();
  append_to_cache(cache, rows, rows.data + heads.q_cols(), b.list.position, b.list.segment_begin, heads);
  attend_to_cache(o.as<float>(), rows, b.list, {}, heads, cache);
}

// To attention's output in scratch.a.
void attention_half(const SectionContext& c, SectionActs& b, const KvLayer& cache) {
  const int64_t S = b.list.rows;
  const Stored o = b.o.slice(0, S);
  const F32 wide_o = for_products(o, c.scratch.o);
  c.config.keeps_all_keys(c.section) ? attention_over_all(c, b, cache, o) : attention_over_list(c, b, cache, o);
  if (o.storage == Storage::kBf16) widen(wide_o, o.as<Bf16>());
  c.products.o.forward(c.scratch.a.slice(0, S), wide_o);  // (S,D)
}

// The second norm's input.
CStored mlp_input(const SectionActs& b) { return (b.z.empty() ? b.saved : b.z).slice(0, b.list.rows); }

// From the second norm, which is in scratch.normed. m (S,D); left out: what section_backward reads, and no more.
void mlp_half(const SectionContext& c, SectionActs& b, F32 m) {
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
void mlp_backward_half(const SectionContext& c, SectionActs& b, SectionWeights& g, F32 ddelta, F32 dz2) {
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

// Back through RoPE, product and norm of rows whose norm had `in` and `rstd`: dz from dy, the gradient of the product's
// output, which is of the first `heads` heads of rotated columns.
void first_product_backward(const SectionContext& c, const Product& product, F32 dz, Accum dW, Accum dnorm, F32 dy,
                            CI32 position, int64_t heads, CStored in, CF32 rstd) {
  const F32 normed = c.scratch.normed.slice(0, dy.rows());
  rope_backward(dy, position, c.rope, heads);
  product.backward_input(dz, dy);
  rmsnorm_apply(normed, in, c.weights.norm1, rstd);
  product.backward_weight(dW, dy, normed);
  rmsnorm_backward(dz, dnorm, dz, in, c.weights.norm1, rstd,
                   c.scratch.partial.reshaped({kGradChunks, c.config.hidden_size}));
}

// dz1 (S,D) from da, which it may overwrite; what goes through the keys of all rows is added to dx.
void attention_backward_half(const SectionContext& c, const SectionActs& b, SectionWeights& g, F32 dz1, F32 da, CF32 x,
                             F32 dx) {
  const int64_t S = b.list.rows, N = c.batch.rows();
  const Heads heads = c.config.heads();
  const Scratch& s = c.scratch;
  const F32 dout = s.o.slice(0, S), rstd = b.rstd1.slice(0, S), lse = b.lse.slice(0, S);
  const F32 wide_o = for_products(b.o.slice(0, S), s.o);
  const CStored saved = b.saved.slice(0, S), o = b.o.slice(0, S), q = b.qkv.slice(0, S);
  if (o.storage == Storage::kBf16) widen(wide_o, o.as<Bf16>());
  c.products.o.backward_weight(add_to(g.o), da, wide_o);
  c.products.o.backward_input(dout, da);  // where wide_o may have been
  if (!c.config.keeps_all_keys(c.section)) {
    const F32 dqkv = s.qkv.slice(0, S);
    attention_backward(dqkv, dout, q, o, lse, b.list.segment_begin, heads);
    return first_product_backward(c, c.products.qkv, dz1, add_to(g.qkv()), add_to(g.norm1), dqkv, b.list.position,
                                  heads.H + heads.G, saved, rstd);
  }
  const F32 dkv = wide_kv_of(c, N), dq = wide_q_of(c, S, N), dkeys = s.dkeys.slice(0, N);
  attention_over_backward(dq, dkv, dout, q, b.kv.slice(0, N), o, lse, b.list.segment_begin, c.batch.segment_begin,
                          b.seen.slice(0, S), heads);
  first_product_backward(c, c.products.q, dz1, add_to(g.q), add_to(g.norm1), dq, b.list.position, heads.H, saved, rstd);
  first_product_backward(c, c.products.kv, dkeys, add_to(g.kv()), add_to(g.norm1), dkv, c.batch.position, heads.G, x,
                         b.rstd_all.slice(0, N));
  scatter_add(dx, {}, dkeys, {});
}

}  // namespace

namespace {

F32 of_list(F32 scratch, const SectionActs& b) { return scratch.slice(0, b.list.rows); }
Stored of_list(const Stored& kept, const SectionActs& b) { return kept.empty() ? kept : kept.slice(0, b.list.rows); }

// The norm before the section's first half, of x's listed rows.
void first_norm(const SectionContext& c, SectionActs& b, const RmsNormIn& in, Stored saved) {
  const bool attention = c.section.attention();
  rmsnorm_forward(of_list(c.scratch.normed, b), of_list(attention ? b.rstd1 : b.rstd2, b), saved, in,
                  attention ? c.weights.norm1 : c.weights.norm2, float(c.config.rms_norm_eps));
}

// The norm between the halves of a whole block, of x + a.
void second_norm(const SectionContext& c, SectionActs& b) {
  rmsnorm_forward(of_list(c.scratch.normed, b), of_list(b.rstd2, b), of_list(b.z, b),
                  {.x = of_list(b.saved, b), .index = {}, .add = of_list(c.scratch.a, b)}, c.weights.norm2,
                  float(c.config.rms_norm_eps));
}

// From the first norm on. With `m` left out, the MLP's last product is.
void run_halves(const SectionContext& c, SectionActs& b, const KvLayer& cache, F32 m) {
  if (c.section.attention()) attention_half(c, b, cache);
  if (c.section.part == Part::kBlock) second_norm(c, b);
  if (c.section.mlp()) mlp_half(c, b, m);
}

Delta delta_of(const SectionContext& c, const SectionActs& b) {
  const F32 a = of_list(c.scratch.a, b), m = of_list(c.scratch.m, b);
  return {c.section.attention() ? a : m, c.section.part == Part::kBlock ? m : F32{}};
}

}  // namespace

Delta section_forward(const SectionContext& c, SectionActs& b, CF32 x, const RowList& list, const KvLayer& cache) {
  b.list = list;
  if (c.config.keeps_all_keys(c.section)) keys_of_all_rows(c, b, x, cache);
  if (c.config.has_experts() && c.section.mlp()) choose_no_experts(b.experts);
  if (list.rows > 0) {
    first_norm(c, b, {.x = x, .index = list.index, .add = {}}, of_list(b.saved, b));
    run_halves(c, b, cache, of_list(c.scratch.m, b));
  }
  return delta_of(c, b);
}

void section_forward_again(const SectionContext& c, SectionActs& b, CF32 x) {
  if (b.list.rows == 0) return;
  if (c.config.keeps_all_keys(c.section)) keys_of_all_rows(c, b, x, {});
  first_norm(c, b, {.x = of_list(b.saved, b), .index = {}, .add = {}}, {});
  if (b.delta.empty()) return run_halves(c, b, {}, {});
  run_halves(c, b, {}, of_list(c.scratch.m, b));
  const Delta sum = delta_of(c, b);
  residual_add_forward({}, of_list(b.delta, b), {}, {}, sum.first, sum.second);
}

Delta section_backward(const SectionContext& c, SectionActs& b, SectionWeights& g, F32 ddelta, CF32 x, F32 dx) {
  const F32 dz1 = ddelta, dz2 = of_list(c.scratch.dz2, b);
  const bool whole = c.section.part == Part::kBlock;
  const Delta dlist = whole ? Delta{dz1, dz2} : Delta{c.section.attention() ? dz1 : dz2, {}};
  if (b.list.rows == 0) return dlist;
  if (c.section.mlp()) mlp_backward_half(c, b, g, ddelta, dz2);
  if (whole) scatter_add(ddelta, {}, dz2, {});  // da: attention's output reaches delta, and the MLP
  if (c.section.attention()) attention_backward_half(c, b, g, dz1, ddelta, x, dx);
  return dlist;
}

}  // namespace isobath
