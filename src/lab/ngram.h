// Counts as a baseline: how well the last one or two tokens alone predict the next. A model that has learned anything
// beyond spelling lies under the trigram.
//
// Interpolated absolute discounting (Ney, Essen & Kneser 1994, "On structuring probabilistic dependences in stochastic
// language modelling"), nothing tuned on the text that is scored:
//   P(w | uv) = max(c(uvw) - d3, 0) / c(uv.) + d3 N(uv.) / c(uv.) P(w | v)     c(uv.) = sum_w c(uvw)
//   P(w | v)  = max(c(vw) - d2, 0) / c(v.) + d2 N(v.) / c(v.) P(w)             N(uv.) = number of w with c(uvw) > 0
//   P(w)      = max(c(w) - d1, 0) / c(.) + d1 N(.) / c(.) / V
// A context that was never seen falls back to the shorter one. d = n1 / (n1 + 2 n2) of its order, where n1 and n2 are
// the n-grams seen once and twice; 3/4 where either is 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/loader.h"

namespace isobath {

class Ngram {
 public:
  static constexpr int kMaxOrder = 3;

  // Counts n-grams of 1 to `order` tokens. Throws Error for an order outside 1 to 3 or a vocabulary over 2^21.
  // Cost: sorts as many 64-bit keys as there are tokens, per order.
  Ngram(const TokenStream& train, int64_t vocab_size, int order = kMaxOrder);

  // P(token | context): of the context, newest last, at most order - 1 tokens are used.
  double probability(std::span<const int32_t> context, int32_t token) const;

  // Nats per target over the evaluation windows of `options`: what Evaluator scores, with as much context as a window
  // gives a model (the first token of a window has none but itself).
  double loss(const TokenStream& text, const LoaderOptions& options, int order) const;

  int order() const { return int(levels_.size()); }

 private:
  struct Context {
    int64_t total, distinct;  // c(uv.), N(uv.)
  };
  struct Level {  // n-grams of one length, keys ascending
    std::vector<uint64_t> gram, context;
    std::vector<int64_t> count;
    std::vector<Context> context_count;
    double discount = 0.75;
  };
  static Level count_level(std::span<const int32_t> tokens, int n);
  double probability_of_order(std::span<const int32_t> context, int32_t token, int n) const;

  int64_t vocab_size_;
  std::vector<Level> levels_;
};

}  // namespace isobath
