#include "model/experts.h"

#include <algorithm>

#include "base/error.h"
#include "base/parallel.h"
#include "model/mlp_chunks.h"
#include "ops/expert_losses.h"
#include "ops/expert_router.h"
#include "ops/residual_add.h"
#include "ops/rmsnorm.h"
#include "ops/swiglu.h"
#include "ops/zero_rows.h"

namespace isobath {
namespace {

// The parts of the buffers that a list of S rows has.
struct Slices {
  F32 logit, p;
  ExpertLists to;
  Slices(const ExpertActs& x, int64_t S)
      : logit(x.logit.slice(0, S)),
        p(x.p.slice(0, S)),
        to{.place = x.to.place.slice(0, S), .row = x.to.row, .begin = x.to.begin, .weight = x.to.weight} {}
};

NormedRows normed_rows(const SectionContext& c, const SectionActs& b, CStored z) {
  return {.z = z, .rstd = b.rstd2.slice(0, z.rows()), .norm = c.weights.norm2};
}

ExpertTally choose(const SectionContext& c, const Slices& s, CI32 run_begin) {
  const ExpertsConfig& e = c.config.experts;
  const bool causal = c.how.by == SelectBy::kCausal;
  if (e.choice == Choice::kExpert && causal)
    return choose_above(s.to, s.logit, s.p, c.weights.expert_offset, c.how.depth);
  if (e.choice == Choice::kExpert)
    return choose_by_expert(s.to, s.logit, s.p, run_begin, e.capacity,
                            {.score = c.scratch.column.slice(0, s.p.shape[0]),
                             .select = c.scratch.select,
                             .chosen_begin = c.scratch.chosen_begin.slice(0, run_begin.numel())});
  // Capacities belong to whole sequences; a token that is generated does not see the end of its own.
  return choose_by_token(s.to, s.logit, s.p, run_begin,
                         {.per_row = e.per_token,
                          .capacity_factor = causal ? 0 : e.capacity_factor,
                          .no_op_capacity = causal ? 0 : e.no_op_capacity,
                          .depth = c.how.depth});
}

Agreement agreement_of(CF32 logit, CI32 place, CF32 offset) {
  Agreement sum{.rows = logit.numel()};
  for (int64_t i = 0; i < logit.numel(); i++) {
    const bool chosen = place[i] >= 0, said = logit[i] + rule_offset(offset, i % logit.cols()) > 0;
    sum += {.rows = 0, .chosen = chosen, .said = said, .both = chosen && said};
  }
  return sum;
}

void choose_experts(const SectionContext& c, SectionActs& b, CStored z) {
  const Slices s(b.experts, z.rows());
  expert_router_forward(s.logit, s.p, normed_rows(c, b, z), c.weights.expert_router);
  try {
    b.experts.tally = choose(c, s, b.list.run_begin);
  } catch (const Error& error) {
    fail_work("{}: {}", c.section.name(), error.what());
  }
  const bool imitates = c.config.experts_choose() && c.config.experts.causal == Causal::kBce;
  if (imitates && c.how.by == SelectBy::kTopK)
    b.experts.agreement = agreement_of(s.logit, s.to.place, c.weights.expert_offset);
}

// What of b.uv the rows of a chunk keep: theirs, or where only one chunk's are there, those.
Stored kept_uv(const SectionActs& b, int64_t at, int64_t rows) {
  const bool all = b.uv.rows() >= b.experts.tally.assigned;
  return b.uv.slice(all ? at : 0, rows);
}

// f(expert, first place, rows) for the chunks of every expert's list.
template <class F>
void for_expert_chunks(const ExpertActs& x, F f) {
  for (int64_t e = 0; e < x.to.experts(); e++) {
    const int64_t first = x.to.begin[e];
    for_mlp_chunks(x.to.begin[e + 1] - first, [&](int64_t begin, int64_t rows) { f(size_t(e), first + begin, rows); });
  }
}

// The losses of the expert router and the weights' gradient, into scratch.dlogit.
F32 score_gradient(const SectionContext& c, SectionActs& b, const Slices& s) {
  const ExpertsConfig& e = c.config.experts;
  const int64_t S = s.p.shape[0];
  ExpertActs& x = b.experts;
  const F32 dp = c.scratch.dp.slice(0, S), dlogit = c.scratch.dlogit.slice(0, S);
  const bool two = e.choice == Choice::kToken && e.per_token == 2;
  expert_weights_backward(dp, c.scratch.dweight.slice(0, x.tally.assigned), s.p, s.to.place,
                          two ? ExpertWeight::kOverTheirSum : ExpertWeight::kRaw);
  if (e.choice == Choice::kToken)
    x.balance_sum =
        expert_balance_loss(add_to(dp), s.logit, s.p, b.list.run_begin, float(c.expert_run_scale * e.balance_weight));
  std::fill_n(dlogit.data, dlogit.numel(), 0.0f);
  Agreement same;
  if (e.choice == Choice::kExpert && e.causal == Causal::kBce)
    x.imitation_sum = expert_imitation_loss(add_to(dlogit), same, s.logit, s.to.place, b.list.run_begin,
                                            float(c.expert_run_scale * e.aux_weight));
  expert_softmax_backward(add_to(dlogit), dp, s.p);
  return dlogit;
}

}  // namespace

void choose_no_experts(ExpertActs& x) {
  std::fill_n(x.to.begin.data, x.to.begin.numel(), 0);
  x.tally = {};
  x.agreement = {};
  x.balance_sum = x.imitation_sum = 0;
}

void experts_half(const SectionContext& c, SectionActs& b, CStored z, F32 m) {
  choose_experts(c, b, z);
  const NormedRows normed = normed_rows(c, b, z);
  const ExpertActs& x = b.experts;
  const Scratch& s = c.scratch;
  if (!m.empty()) zero_rows(m);
  for_expert_chunks(x, [&](size_t e, int64_t at, int64_t rows) {
    const CI32 index = x.to.row.slice(at, rows);
    const Stored uv = kept_uv(b, at, rows);
    const F32 wide_uv = for_products(uv, s.uv), h = s.h.slice(0, rows);
    const F32 in = s.rows.slice(0, rows), out = s.sums.slice(0, rows);
    rmsnorm_apply(in, normed.z, normed.norm, normed.rstd, index);  // (rows,D) the expert's rows
    c.products.expert[e].gate_up.forward(wide_uv, in);             // (rows,2F)
    if (m.empty() && uv.storage == Storage::kF32) return;
    swiglu_forward(h, uv, wide_uv, x.to.weight.slice(at, rows));  // (rows,F) times the rows' weights
    if (m.empty()) return;
    c.products.expert[e].down.forward(out, h);  // (rows,D)
    scatter_add(m, index, out, {});             // experts in ascending order, whatever else is in the batch
  });
}

void experts_backward_half(const SectionContext& c, SectionActs& b, SectionWeights& g, CStored z, CF32 dm, F32 dh) {
  const NormedRows normed = normed_rows(c, b, z);
  const ExpertActs& x = b.experts;
  const Scratch& s = c.scratch;
  zero_rows(dh);
  for_expert_chunks(x, [&](size_t e, int64_t at, int64_t rows) {
    const CI32 index = x.to.row.slice(at, rows);
    const Stored uv = kept_uv(b, at, rows);
    const F32 duv = for_products(uv, s.uv), h = s.h.slice(0, rows);
    const F32 in = s.rows.slice(0, rows), dout = s.sums.slice(0, rows), din = dout;
    residual_add_backward(dout, {}, dm, index, {}, {});  // the rows' dm
    rmsnorm_apply(in, normed.z, normed.norm, normed.rstd, index);
    c.products.expert[e].down.backward_input(h, dout);
    swiglu_backward(duv, h, uv, {x.to.weight.slice(at, rows), s.dweight.slice(at, rows)});
    c.products.expert[e].down.backward_weight(add_to(g.expert[e].down), dout, h);
    c.products.expert[e].gate_up.backward_input(din, duv);
    c.products.expert[e].gate_up.backward_weight(add_to(g.expert[e].gate_up()), duv, in);
    scatter_add(dh, index, din, {});
  });
  const Slices slices(x, z.rows());
  const F32 dlogit = score_gradient(c, b, slices), partial = s.partial;
  expert_router_backward_weight(add_to(g.expert_router), dlogit, normed,
                                partial.reshaped({kGradChunks, c.weights.expert_router.numel()}));
  expert_router_backward_input(add_to(dh), dlogit, c.weights.expert_router);
}

}  // namespace isobath
