// Root-mean-square normalization of listed rows, with the gather inside it and an optional second summand.
//   z[s]   = x[index[s]] + add[s]                     add is left out: z = x[index[s]]; index left out: index[s] = s
//   rstd[s] = 1 / sqrt(mean_d(z[s,d]^2) + eps)
//   y[s,d] = z[s,d] * rstd[s] * weight[d]
// x (N,D) fp32 or bf16   index (S)   add, y (S,D)   rstd (S)   weight (D).   y may alias neither x nor add.
// `saved` (S,D) fp32 or bf16, if given, receives z, which backward needs once x and add are gone. y and rstd are of the
// saved numbers: those of a z that was rounded first.
// Source: Zhang & Sennrich 2019, arXiv:1910.07467, eq. 4.
//
// backward, z being what forward saved:
//   g[s,d]  = dy[s,d] * weight[d]
//   dz[s,d] = rstd[s] * (g[s,d] - z[s,d] * rstd[s]^2 * mean_d(g[s,d] z[s,d]))
//   dweight[d] += sum_s dy[s,d] * z[s,d] * rstd[s]    rows in kGradChunks fixed chunks, combined in order
// dz (S,D) is overwritten and may alias dy.   partial (kGradChunks, D) is scratch.
//
// rmsnorm_apply makes y again from z and rstd, with the bits that forward gave; with an index (J) of rows in any order,
// y (J,D) holds those rows: y[j] = z[index[j]] * rstd[index[j]] * weight.
#pragma once

#include "tensor/stored.h"

namespace isobath {

struct RmsNormIn {
  CStored x;   // (N,D)
  CI32 index;  // (S), or empty
  CF32 add;    // (S,D), or empty
};

void rmsnorm_forward(F32 y, F32 rstd, Stored saved, const RmsNormIn& in, CF32 weight, float eps);
void rmsnorm_apply(F32 y, CStored z, CF32 weight, CF32 rstd, CI32 index = {});
void rmsnorm_backward(F32 dz, Accum dweight, CF32 dy, CStored z, CF32 weight, CF32 rstd, F32 partial);

}  // namespace isobath
