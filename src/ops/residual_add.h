// The one residual add of a block: gate, sum and scatter in the pass that writes the rows.
//   forward:   x[index[s]] += gate[s] * (a[s] + m[s])          gate empty: 1;  m empty: 0
//              delta[s] = a[s] + m[s]                          where delta (S,D), fp32 or bf16, is given: it is kept
//                                                              for backward, and x gets the kept numbers. With delta
//                                                              alone, x left out, nothing else is done
//   backward:  ddelta[s] = gate[s] * dx[index[s]]
//              dgate[s]  = <dx[index[s]], delta[s]>            only where dgate is given
// x, dx (N,D)   index (S) ascending, empty: row s   gate, dgate (S)   a, m, ddelta (S,D)
//
// scatter_add: the last pass of a block's backward.
//   dx[index[s]] += da[s] + db[s]                                db empty: 0
// router_backward_input, over all N rows of a routed block:
//   dx[n] += dr[n] * w
#pragma once

#include "tensor/stored.h"

namespace isobath {

void residual_add_forward(F32 x, Stored delta, CI32 index, CF32 gate, CF32 a, CF32 m);
void residual_add_backward(F32 ddelta, F32 dgate, CF32 dx, CI32 index, CF32 gate, CStored delta);
void scatter_add(F32 dx, CI32 index, CF32 da, CF32 db);
void router_backward_input(F32 dx, CF32 dr, CF32 w);

}  // namespace isobath
