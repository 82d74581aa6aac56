// The predictor of causal rule `predictor`: a small MLP that reads what the router reads and guesses the top-k choice.
//   u = x W1^T + b1,   p[n] = <silu(u[n]), w2> + b2
// x (N,D), whose gradient is stopped   W1 (P,D)  b1, w2 (P)  b2 (1)   u (N,P) before the activation   p (N)
// The products x W1^T are Linear's; these are the rest:
//   forward:   u += b1 in place, p as above.        Bits of p[n] depend on row n alone.
//   backward:  du[n] = dp[n] w2 silu'(u[n]) in place of u;   dw2 += sum_n dp[n] silu(u[n]),  db2 += sum_n dp[n],
//              db1 += sum_n du[n];   dW1 is Linear's backward_weight(dW1, du, x).     partial (kGradChunks, 2P+1)
// Multiply-adds counted: N P forward, 2 N P backward.
#pragma once

#include "tensor/view.h"

namespace isobath {

void predictor_forward(F32 p, F32 u, CF32 b1, CF32 w2, CF32 b2);
void predictor_backward(F32 u_to_du, Accum db1, Accum dw2, Accum db2, CF32 dp, CF32 w2, F32 partial);

}  // namespace isobath
