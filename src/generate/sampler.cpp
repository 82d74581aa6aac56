#include "generate/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"

namespace isobath {
namespace {

// What a random number is for: each has a stream of its own.
enum class Draw : uint32_t { kToken, kDraft, kStands, kInstead };

double uniform(const SamplerOptions& o, Draw what, int64_t position) {
  return Rng(o.seed, Stream::kSample, uint32_t(what)).uniform(uint64_t(position));
}

// The id of the largest logit, the lowest one of equals.
int32_t largest(CF32 logits, int64_t position) {
  int64_t best = 0;
  for (int64_t i = 0; i < logits.numel(); i++) {
    if (!std::isfinite(logits[i]))
      fail_work("sampling: the logit of token {} for position {} is {}; the weights are damaged or training diverged",
                i, position, logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  return int32_t(best);
}

}  // namespace

bool Sampler::likelier(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
}

void check(const SamplerOptions& o) {
  require(std::isfinite(o.temperature) && o.temperature >= 0,
          "temperature is {}, expected 0 (greedy) or a number above it", o.temperature);
  require(o.top_k >= 0, "top_k is {}, expected 0 (all tokens) or more", o.top_k);
  require(o.top_p > 0 && o.top_p <= 1, "top_p is {}, expected above 0 and at most 1 (all tokens)", o.top_p);
  require(o.min_p >= 0 && o.min_p <= 1, "min_p is {}, expected 0 (all tokens) to 1", o.min_p);
}

Sampler::Sampler(int64_t vocab_size) : candidates_(size_t(vocab_size)), proposal_(size_t(vocab_size)) {}

double Sampler::weight_of_first(int64_t count) const {
  double total = 0;
  for (int64_t i = 0; i < count; i++) total += candidates_[size_t(i)].weight;
  return total;
}

// How many of the first `count` candidates hold `share` of their weight, likeliest first. `sorted` of them are in
// order; the rest is sorted in steps that double, since mostly a few of V are wanted.
int64_t Sampler::shortest_beginning(double share, int64_t count, int64_t sorted) {
  const double enough = share * weight_of_first(count);
  const auto first = candidates_.begin();
  double held = 0;
  int64_t kept = 0;
  for (; kept < count && held < enough; kept++) {
    if (kept == sorted) {
      sorted = std::min(count, std::max<int64_t>(64, 2 * sorted));
      std::partial_sort(first + kept, first + sorted, first + count, likelier);
    }
    held += candidates_[size_t(kept)].weight;
  }
  return kept;
}

Sampler::Kept Sampler::keep(CF32 logits, const SamplerOptions& o, int64_t position) {
  const int64_t V = int64_t(candidates_.size());
  require(logits.numel() == V, "sampling: {} logits for a vocabulary of {}", logits.numel(), V);
  const int32_t best = largest(logits, position);
  if (o.temperature == 0) {
    candidates_[0] = {1, best};
    return {1, best};
  }
  const double max = double(logits[best]);
  for (int32_t i = 0; i < int32_t(V); i++)
    candidates_[size_t(i)] = {std::exp((double(logits[i]) - max) / o.temperature), i};

  const auto first = candidates_.begin();
  const bool few = o.top_k > 0 && o.top_k < V;
  int64_t kept = few ? o.top_k : V;
  if (few) std::partial_sort(first, first + kept, candidates_.end(), likelier);
  if (o.top_p < 1) kept = shortest_beginning(o.top_p, kept, few ? kept : 0);
  kept = std::remove_if(first, first + kept, [&](const Candidate& c) { return c.weight < o.min_p; }) - first;
  return {kept, best};
}

int32_t Sampler::draw(const Kept& kept, double uniform) const {
  const double drawn = uniform * weight_of_first(kept.count);
  double passed = 0;
  for (int64_t i = 0; i < kept.count; i++) {
    passed += candidates_[size_t(i)].weight;
    if (drawn < passed) return candidates_[size_t(i)].id;
  }
  return kept.best;  // unreachable but for rounding: drawn is below the sum of the same numbers
}

int32_t Sampler::sample(CF32 logits, const SamplerOptions& o, int64_t position) {
  return draw(keep(logits, o, position), uniform(o, Draw::kToken, position));
}

int32_t Sampler::draft(CF32 draft_logits, const SamplerOptions& o, int64_t position) {
  return draw(keep(draft_logits, o, position), uniform(o, Draw::kDraft, position));
}

int32_t Sampler::verify(CF32 logits, CF32 draft_logits, int32_t drafted, const SamplerOptions& o, int64_t position) {
  const Kept q = keep(draft_logits, o, position);
  const double q_total = weight_of_first(q.count);
  std::fill(proposal_.begin(), proposal_.end(), 0.0);
  for (int64_t i = 0; i < q.count; i++)
    proposal_[size_t(candidates_[size_t(i)].id)] = candidates_[size_t(i)].weight / q_total;

  const Kept p = keep(logits, o, position);
  const double p_total = weight_of_first(p.count);
  double likely = 0;  // p(drafted)
  for (int64_t i = 0; i < p.count; i++) {
    Candidate& c = candidates_[size_t(i)];
    const double share = c.weight / p_total;
    if (c.id == drafted) likely = share;
    c.weight = std::max(0.0, share - proposal_[size_t(c.id)]);
  }
  if (uniform(o, Draw::kStands, position) * proposal_[size_t(drafted)] < likely) return drafted;
  return draw(p, uniform(o, Draw::kInstead, position));
}

}  // namespace isobath
