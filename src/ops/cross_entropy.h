// Cross-entropy of one chunk of rows, from logits that live for that chunk only. The output head's product runs before
// it and after it on the same chunk (model/network.cpp), so the logits of a batch are never in memory together.
//   lse = log sum_v exp(z[n,v]),  loss[n] = lse - z[n,target[n]],  entropy[n] = lse - sum_v softmax(z[n])_v z[n,v]
//   dz[n,v] = scale * (softmax(z[n])_v - [v = target[n]])          in place of z
// z (N,V)   target (N), -1: not scored (loss 0, dz 0; the entropy is still given)   loss, entropy (N)
// Only the first V columns that the vocabulary has are looked at: padding columns do not exist here.
// scale = 0: loss and entropy only, z is left as it is. Bits of a row depend on that row alone.
// A logit that is not finite gives a NaN loss (scored rows) and entropy, whichever column it is in.
// Throws Error if a target is not in [-1, V).
#pragma once

#include "tensor/view.h"

namespace isobath {

void cross_entropy(F32 z, F32 loss, F32 entropy, CI32 target, float scale);

}  // namespace isobath
