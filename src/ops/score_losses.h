// Losses on router scores that have no target. Plain code in float64: a few thousand numbers per call, rows in order.
//   square_loss:   L = scale * sum_n r[n]^2,                   dr[n] += scale * 2 r[n]
//   balance_loss:  per run s of T_s rows  d_s = mean_i sigmoid(r_i) - C;   L = scale * sum_s d_s^2,
//                  dr[i] += scale * 2 d_s sigmoid'(r_i) / T_s
// r, dr (N)   run_begin (runs+1), first 0, last N. Returns the unscaled sum.
// Source: Zoph et al. 2022, arXiv:2202.08906, eq. 5 (the z-loss), for a router with one output.
#pragma once

#include "tensor/view.h"

namespace isobath {

double square_loss(Accum dr, CF32 r, float scale);
double balance_loss(Accum dr, CF32 r, CI32 run_begin, double capacity, float scale);

}  // namespace isobath
