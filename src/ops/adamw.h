// AdamW with bias correction, one pass over memory; and the gradient norm.
//   m = beta1 m + (1-beta1) g s,  v = beta2 v + (1-beta2) (g s)^2
//   w -= lr * ( m / (1-beta1^t) / (sqrt(v / (1-beta2^t)) + eps) + weight_decay * w )      g is then set to 0
// s is the clipping factor. w, m, v, g: any length, the same.   t counts from 1.
// Source: Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2.
//
// sum_of_squares: in float64, chunks of kSumChunk elements, combined in order: the same bits for any number of threads.
// partial must hold ceil(n / kSumChunk) doubles. A NaN or infinite element gives a NaN or infinite sum.
#pragma once

#include "tensor/view.h"

namespace isobath {

struct AdamW {
  float lr, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f;
};

inline constexpr int64_t kSumChunk = 1 << 16;

void adamw_step(F32 w, F32 m, F32 v, F32 g, const AdamW& option, float gradient_scale, int64_t t);
double sum_of_squares(CF32 x, View<double> partial);

}  // namespace isobath
