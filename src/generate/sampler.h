// From logits to the next token: a pure function of (logits, options, position).
//
//   temperature 0:  the largest logit, ties to the lower id
//   else            w[i] = exp((logit[i] - max) / temperature), and of the ids in falling order of w (ties: lower id
//   first)
//                   top_k   keeps the first k
//                   top_p   of those, the shortest beginning that holds at least the share p of their weight
//                   min_p   of those, the ones with w >= min_p (relative to the most likely: w = 1)
//                   one of what is left is drawn with probability proportional to w, in float64
// The order is that of Hugging Face transformers: temperature, top-k, top-p, min-p. Every filter keeps the first id.
// The random number is Rng(seed, kSample) at `position`: sequences of a batch draw as they would alone, and a token
// drawn again after a rollback is the same.
//
// Speculative sampling: a token x that was drawn from another distribution q, a draft's, stands with probability
// min(1, p(x) / q(x)), else one is drawn in proportion to max(0, p - q): what comes is distributed as p, whatever q is.
// p and q are what the options make of either's logits. Drafting, standing and drawing instead have numbers of their
// own. Sources: Fan et al. 2018, arXiv:1805.04833 (top-k); Holtzman et al. 2020, arXiv:1904.09751 (top-p); Nguyen et
// al. 2024, arXiv:2407.01082 (min-p); Leviathan et al. 2023, arXiv:2211.17192, and Chen et al. 2023, arXiv:2302.01318
// (speculative sampling).
#pragma once

#include <cstdint>
#include <vector>

#include "tensor/view.h"

namespace isobath {

struct SamplerOptions {
  double temperature = 1;  // 0: greedy
  int64_t top_k = 0;       // 0: all
  double top_p = 1;        // in (0,1]; 1: all
  double min_p = 0;        // in [0,1]; 0: all
  uint64_t seed = 1;
};

// Throws Error naming the option, its value and what was expected.
void check(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(int64_t vocab_size);

  // logits (V). `position` is that of the token to be drawn. Allocates nothing.
  // Throws Error{kWork} naming the token id if a logit is not finite.
  // Cost: V exponentials; top_k and top_p sort as many ids as they keep, at most twice as many.
  int32_t sample(CF32 logits, const SamplerOptions& options, int64_t position);

  // The draft's token: as sample(), by another random number.
  int32_t draft(CF32 draft_logits, const SamplerOptions& options, int64_t position);
  // The token at a position for which draft() gave `drafted`; that one exactly if it stands. With temperature 0 what
  // sample() says. Throws as sample() does.
  int32_t verify(CF32 logits, CF32 draft_logits, int32_t drafted, const SamplerOptions& options, int64_t position);

 private:
  struct Candidate {
    double weight;
    int32_t id;
  };
  // What the filters leave: the first `count` of candidates_, and the likeliest of them.
  struct Kept {
    int64_t count;
    int32_t best;
  };
  static bool likelier(const Candidate& a, const Candidate& b);
  Kept keep(CF32 logits, const SamplerOptions& o, int64_t position);
  int32_t draw(const Kept& kept, double uniform) const;
  int64_t shortest_beginning(double share, int64_t count, int64_t sorted);
  double weight_of_first(int64_t count) const;
  std::vector<Candidate> candidates_;  // (V)
  std::vector<double> proposal_;       // (V) q of verify()
};

}  // namespace isobath
