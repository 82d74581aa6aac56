// Rows go through an MLP in chunks, so that what only lives within it stays in cache between the products.
#pragma once

#include <algorithm>

#include "model/activations.h"

namespace isobath {

// Products read and write fp32: a kept array itself where it is that, else its stand-in in scratch.
inline F32 for_products(const Stored& kept, F32 stand_in) {
  return kept.storage == Storage::kF32 ? kept.as<float>() : stand_in.slice(0, kept.rows());
}

// f(first row, rows) for the chunks of S rows, one after the other.
template <class F>
void for_mlp_chunks(int64_t S, F f) {
  for (int64_t begin = 0; begin < S; begin += kMlpRows) f(begin, std::min(kMlpRows, S - begin));
}

}  // namespace isobath
