// Router scores and the gate. Always fp32, whatever the compute type: a flipped selection is another model.
//   score:      r[n] = <w, x[n]> + b                      b is left out by default
//   weight:     dw += sum_n dr[n] x[index[n]],   db += sum_n dr[n]      fixed chunks, combined in order
//   (the gradient to x, dr[n] * w, is added where the residual gradient is written: residual_add.h)
// x (N,D)   w (D)   b (1) or empty   r (N)
// Bits of r[n] depend on x[n], w and b alone.
//
// Normed, in one pass over the rows each:
//   score:      r[n] = <w, x[n]> rstd[n] + b,   rstd[n] = 1 / sqrt(mean_d x[n,d]^2 + eps)
//   weight:     dw += sum_n dr[n] rstd[n] x[index[n]]
//   input:      dx[n] += dr[n] rstd[n] (w - (r[n] - b) rstd[n] / D * x[n])
//
//   gate:       raw g = r;  sigmoid g = 1/(1+exp(-r));  tanh g = tanh(r).  Of that row alone: never a normaliser.
//   backward:   dr[s] = dg[s] * dgate/dr
// Source: Raposo et al. 2024, arXiv:2404.02258, eq. 1.
#pragma once

#include "tensor/stored.h"

namespace isobath {

enum class Gate : uint8_t { kRaw, kSigmoid, kTanh };

void router_score(F32 r, CF32 x, CF32 w, CF32 b);
void router_score_normed(F32 r, F32 rstd, CF32 x, CF32 w, CF32 b, float eps);

// rstd (N) or empty: not normed. row (S) says which of them belongs to dr[s]; empty: rstd[s].
struct RouterRms {
  CF32 rstd = {};
  CI32 row = {};
};
// x (N,D) fp32 or bf16. index (S) names the rows of x that dr (S) belongs to; empty: all rows. partial (kGradChunks, D)
// is scratch.
void router_backward_weight(Accum dw, Accum db, CF32 dr, CStored x, CI32 index, F32 partial, const RouterRms& rms = {});
// x (N,D) as it was scored.
void router_backward_input_normed(F32 dx, CF32 dr, CF32 x, CF32 w, CF32 b, CF32 r, CF32 rstd);
// x[index[s]] = saved[s]: the stream as it was before a block wrote to it. index (S) ascending, empty: row s.
// saved (S,D) fp32 or bf16.
void restore_rows(F32 x, CI32 index, CStored saved);

// g[s] = gate(r[index[s]])
void gate_forward(F32 g, CF32 r, CI32 index, Gate gate);
// dr[s] = dg[s] * gate'(r[index[s]])
void gate_backward(F32 dr, CF32 dg, CF32 r, CI32 index, Gate gate);

}  // namespace isobath
