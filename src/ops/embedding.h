// Token embedding.
//   forward:   x[n] = table[token[n]]
//   backward:  dtable[token[n]] += dx[n], rows in ascending n: the same bits for any number of threads
// token (N)   x, dx (N,D)   table, dtable (V,D)
// Throws Error if shapes disagree or a token is outside [0, V).   Cost: one pass over x.
#pragma once

#include "tensor/view.h"

namespace isobath {

void embedding_forward(F32 x, CI32 token, CF32 table);
void embedding_backward(Accum dtable, CF32 dx, CI32 token);

}  // namespace isobath
