// Gated linear unit with SiLU.
//   forward:   h[s,f] = silu(u[s,f]) * v[s,f],   silu(u) = u * sigmoid(u)
//   backward:  du = dh * v * sigmoid(u) * (1 + u * (1 - sigmoid(u))),   dv = dh * silu(u)
// A row of uv (S,2F) is F gate values u, then F up values v.   h, dh (S,F)   duv (S,2F), which may alias an fp32 uv.
// `kept` (S,2F) fp32 or bf16 receives uv for backward; it may be uv itself. h is of the kept numbers: those of a uv
// that was rounded first. backward reads what forward kept. It finds dh in dh_to_h and leaves h there (forward's bits):
// the next product's weight gradient needs it, and nobody kept it. Source: Shazeer 2020, arXiv:2002.05202.
//
// With row weights (a mixture of experts), in the same passes:
//   forward:   h[s] is w[s] times the above          backward:  dw[s] = <dh[s], h[s] without w>, then dh[s] times w[s]
// w, dw (S). What is left for the weight gradient is forward's h, w included.
#pragma once

#include "tensor/stored.h"

namespace isobath {

struct RowWeights {
  CF32 w;  // (S), or empty: 1
  F32 dw;  // (S)
};

void swiglu_forward(F32 h, Stored kept, CF32 uv, CF32 w = {});
void swiglu_backward(F32 duv, F32 dh_to_h, CStored uv, const RowWeights& weights = {});

}  // namespace isobath
