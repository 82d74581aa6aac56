// Scores of a mixture of experts. Always fp32, whatever the compute type. The rows are normed while they are read, as
// rmsnorm_apply would (rmsnorm.h): no normed copy of all rows is made for the router.
//   h[s,d]     = z[s,d] * rstd[s] * norm[d]
//   logit[s,o] = <h[s], W[o]>                p[s,o] = exp(logit[s,o] - max_q logit[s,q]) / sum over o
// Outputs O = experts, then no-ops.   z (S,D) fp32 or bf16   rstd (S)   norm (D)   W (O,D)   logit, p (S,O)
// Bits of a row depend on that row, norm and W alone.
//
//   softmax_backward:   dlogit[s,o] += p[s,o] * (dp[s,o] - sum_q dp[s,q] p[s,q])
//   backward_weight:    dW[o] += sum_s dlogit[s,o] h[s]        rows in kGradChunks fixed chunks, combined in order
//   backward_input:     dh[s] += sum_o dlogit[s,o] W[o]
// partial (kGradChunks, O*D) is scratch.   Source: Shazeer et al. 2017, arXiv:1701.06538, without noise.
#pragma once

#include "tensor/stored.h"

namespace isobath {

struct NormedRows {
  CStored z;  // (S,D)
  CF32 rstd;  // (S)
  CF32 norm;  // (D)
};

void expert_router_forward(F32 logit, F32 p, const NormedRows& h, CF32 W);
void expert_softmax_backward(Accum dlogit, CF32 dp, CF32 p);
void expert_router_backward_weight(Accum dW, CF32 dlogit, const NormedRows& h, F32 partial);
void expert_router_backward_input(Accum dh, CF32 dlogit, CF32 W);

}  // namespace isobath
