// Losses on router scores that have no target. Plain code in float64: a few thousand numbers per call, rows in order.
//   square_loss:   L = scale * sum_n r[n]^2,                   dr[n] += scale * 2 r[n]
// r, dr (N). Returns the unscaled sum.
// Source: Zoph et al. 2022, arXiv:2202.08906, eq. 5 (the z-loss), for a router with one output.
#pragma once

#include "tensor/view.h"

namespace isobath {

double square_loss(Accum dr, CF32 r, float scale);

}  // namespace isobath
