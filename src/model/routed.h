// Routing is a wrapper, not a kind of layer. `Routed` scores rows, selects, runs the inner layer on the sub-list and
// adds gate * delta back (Raposo et al. 2024, arXiv:2404.02258, eq. 1):
//   y_i = x_i + gate(r_i) * inner(x_R)_i  for i in R,   y_i = x_i  otherwise
// The inner layer is any callable over a list; it never knows that it is wrapped. A dense block is the same inner layer
// with dense_forward: the list of all rows, and no gate.
#pragma once

#include "base/parallel.h"
#include "model/section.h"
#include "model/selection.h"
#include "ops/residual_add.h"

namespace isobath {

// inner(x, list) -> Delta
// `delta`, if given, keeps what inner returns, for routed_backward.
template <class Inner>
void routed_forward(F32 x, const RouterContext& c, RouterActs& r, Stored delta, const Batch& batch,
                    const Selection& how, Inner inner) {
  choose_rows(c, r, x, batch, how);
  const int64_t S = r.list.rows;
  const Delta sum = inner(x, r.list);
  residual_add_forward(x, delta.empty() ? delta : delta.slice(0, S), r.list.index, r.gate.slice(0, S), sum.first,
                       sum.second);
}

template <class Inner>
void dense_forward(F32 x, const Batch& batch, Inner inner) {
  const RowList all{{}, batch.position, batch.segment_begin, batch.rows(), batch.capacity_begin};
  const Delta delta = inner(x, all);
  residual_add_forward(x, {}, {}, {}, delta.first, delta.second);
}

// inner_backward(ddelta) -> gradients of the list's inputs as two summands. `delta` and `saved` are what forward left:
// the inner layer's output and the list's inputs; x the stream as it was scored, of router_input = normed, else unread.
// In bf16, delta, saved and with them x are the rounded numbers: the scores were of those before rounding.
template <class InnerBackward>
void routed_backward(F32 dx, const RouterContext& c, RouterWeights& gradient, RouterActs& r, CStored delta,
                     CStored saved, CF32 x, InnerBackward inner_backward) {
  const int64_t S = r.list.rows, N = dx.rows();
  const F32 ddelta = c.scratch.ddelta.slice(0, S), dgate = r.dgate.slice(0, S), dscore = r.dscore.slice(0, N);
  residual_add_backward(ddelta, dgate, dx, r.list.index, r.gate.slice(0, S), delta);
  const bool learned = c.config.routing.router == Router::kLearned;
  if (learned) {
    gate_backward(dgate, dgate, r.score.slice(0, N), r.list.index, c.config.routing.gate);
    router_backward_weight(add_to(gradient.w), add_to(gradient.bias), dgate, saved, {},
                           c.scratch.partial.reshaped({kGradChunks, dx.cols()}), rms_of(r, N, r.list.index));
    for (int64_t s = 0; s < S; s++) dscore[r.list.index[s]] += dgate[s];
  }
  const Delta dlist = inner_backward(ddelta);
  scatter_add(dx, r.list.index, dlist.first, dlist.second);
  if (c.config.norms_router_input())
    router_backward_input_normed(dx, dscore, x, c.weights.w, c.weights.bias, r.score.slice(0, N), r.rstd.slice(0, N));
  else if (learned)
    router_backward_input(dx, dscore, c.weights.w);
}

template <class InnerBackward>
void dense_backward(F32 dx, Scratch& scratch, InnerBackward inner_backward) {
  const F32 ddelta = scratch.ddelta.slice(0, dx.rows());
  residual_add_backward(ddelta, {}, dx, {}, {}, {});
  const Delta dlist = inner_backward(ddelta);
  scatter_add(dx, {}, dlist.first, dlist.second);
}

}  // namespace isobath
