// Rotary position embedding at given positions, rotate-half order (Hugging Face Llama).
//   for head h, i < K/2:  (u, v) = (x[h,i], x[h,i+K/2]),  angle = position[s] * theta^(-2i/K)
//   y[h,i] = u cos - v sin,   y[h,i+K/2] = v cos + u sin
// The first `heads` heads of K numbers of each row are rotated, the rest (values) is copied.
// forward: y (S, row) fp32 or bf16, which may be x; its numbers are rounded once, as they are written.
// backward is the rotation by -angle, in place.   position (S), each in [0, table length).
// The table (positions, K) holds cos in columns [0,K/2) and sin in [K/2,K), computed in float64.
// Source: Su et al. 2021, arXiv:2104.09864.
#pragma once

#include "tensor/stored.h"

namespace isobath {

void rope_table(F32 table, double theta);
void rope_forward(Stored y, CF32 x, CI32 position, CF32 table, int64_t heads);
void rope_backward(F32 dx, CI32 position, CF32 table, int64_t heads);

}  // namespace isobath
