#include "train/budget.h"

#include <cmath>

#include "base/error.h"

namespace isobath {
namespace {

// With document scopes sequences are ragged: the budget is walked, sequence by sequence as the run will read them.
Budget walk_budget(const RunConfig& c, Loader& loader) {
  constexpr double kMostSequences = 1e8;
  require(c.train.flops < kMostSequences * double(model_flops(c.model, 1, c.data.context).training()),
          "a budget of {:.3g} FLOPs is over {:.0e} sequences, which are walked one by one with document scopes; lower "
          "--flops, or give --steps or --tokens",
          c.train.flops, kMostSequences);
  Budget budget;
  int64_t sequences = 0;
  for (;; sequences++) {
    const Batch& batch = loader.train(sequences, 1);
    const double next = double(model_flops(c.model, batch.capacity_begin, batch.segment_begin).training());
    if (budget.flops + next / 2 > c.train.flops) break;
    budget.flops += next;
  }
  require(sequences > 0,
          "a budget of {:.3g} FLOPs is less than one sequence; raise --flops or lower context or model size",
          c.train.flops);
  budget.steps = (sequences + c.data.batch - 1) / c.data.batch;
  budget.last_sequences = sequences % c.data.batch;
  return budget;
}

// A run of whole sequences whose capacity is annealed.
class AnnealedRun {
 public:
  explicit AnnealedRun(const RunConfig& c) : config_(c), model_(c.model) {}

  // FLOPs of one sequence of step `step` of `steps`.
  double per_sequence(int64_t step, int64_t steps) {
    model_.routing.annealed = anneal_of(config_.train, steps).at(step);
    return double(model_flops(model_, 1, config_.data.context).training());
  }
  // FLOPs of the first `done` of `steps` steps. When capacity has arrived, steps cost the same.
  double spent(int64_t done, int64_t steps) {
    constexpr double kMost = 1e7;
    const double length = anneal_of(config_.train, steps).steps;
    require(length <= kMost,
            "train.capacity_anneal takes {:.3g} steps, expected at most {:.0e}; name a number of steps", length, kMost);
    double sum = 0;
    for (int64_t step = 1; step <= done; step++) {
      const double cost = double(config_.data.batch) * per_sequence(step, steps);
      if (model_.routing.annealed == 1) return sum + double(done - step + 1) * cost;
      sum += cost;
    }
    return sum;
  }
  // Under 1,000 steps the last batch shrinks, as in plan_budget.
  Budget of_flops(double flops) {
    const double least = per_sequence(1, 1);
    require(flops >= least, "a budget of {:.3g} FLOPs is less than one sequence at capacity 1 ({:.3g}); raise --flops",
            flops, least);
    int64_t below = 0, enough = 1;
    while (spent(enough, enough) < flops) below = enough, enough *= 2;
    while (enough - below > 1) {
      const int64_t middle = below + (enough - below) / 2;
      (spent(middle, middle) < flops ? below : enough) = middle;
    }
    if (enough >= 1000) {
      const double more = spent(enough, enough), fewer = spent(below, below);
      return flops - fewer < more - flops ? Budget{below, 0, fewer} : Budget{enough, 0, more};
    }
    const double before = spent(enough - 1, enough), each = per_sequence(enough, enough);
    const int64_t last = std::llround((flops - before) / each);
    if (last <= 0) return {enough - 1, 0, spent(enough - 1, enough - 1)};
    if (last >= config_.data.batch) return {enough, 0, spent(enough, enough)};
    return {enough, last, before + double(last) * each};
  }
  Budget of_sequences(int64_t sequences) {
    const int64_t B = config_.data.batch, steps = (sequences + B - 1) / B, last = sequences % B;
    if (last == 0) return {steps, 0, spent(steps, steps)};
    return {steps, last, spent(steps - 1, steps) + double(last) * per_sequence(steps, steps)};
  }

 private:
  const RunConfig& config_;
  ModelConfig model_;
};

}  // namespace

CapacityAnneal anneal_of(const TrainOptions& o, int64_t steps) {
  const double length = o.capacity_anneal < 1 ? o.capacity_anneal * double(steps) : o.capacity_anneal;
  return {.steps = std::round(length), .cosine = o.capacity_anneal_shape == AnnealShape::kCosine};
}

Budget budget_of(const RunConfig& c, Loader* loader) {
  const int64_t B = c.data.batch, T = c.data.context;
  const double per_sequence = double(model_flops(c.model, 1, T).training());
  const bool ragged =
      c.model.routing.capacity_scope == Scope::kDocument || c.model.routing.attention_scope == Scope::kDocument;
  const bool anneals = c.train.capacity_anneal > 0 && c.model.routed_blocks() > 0;
  require(!(anneals && ragged && c.train.flops > 0),
          "a budget of FLOPs with capacity_anneal needs sequences of one size, not documents; use --steps or --tokens");
  require(c.train.tokens == 0 || c.train.tokens >= T,
          "a budget of {} tokens is less than one sequence of {}; raise --tokens or lower --context", c.train.tokens,
          T);
  if (anneals) {
    AnnealedRun run(c);
    if (c.train.flops > 0) return run.of_flops(c.train.flops);
    if (c.train.steps > 0) return {c.train.steps, 0, run.spent(c.train.steps, c.train.steps)};
    return run.of_sequences(std::llround(double(c.train.tokens) / double(T)));
  }
  if (c.train.flops > 0 && ragged) return walk_budget(c, *loader);
  if (c.train.flops > 0) return plan_budget(c.model, B, T, c.train.flops);
  if (c.train.steps > 0)
    return {.steps = c.train.steps, .last_sequences = 0, .flops = double(c.train.steps) * double(B) * per_sequence};
  return plan_budget(c.model, B, T, double(c.train.tokens) / double(T) * per_sequence);
}

}  // namespace isobath
