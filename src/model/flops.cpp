#include "model/flops.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/expert_choice.h"
#include "ops/linear.h"
#include "ops/select.h"

namespace isobath {
namespace {

int64_t sum_of_squares(CI32 begin) {
  int64_t sum = 0;
  for (int64_t s = 0; s + 1 < begin.numel(); s++) {
    const int64_t n = begin[s + 1] - begin[s];
    sum += n * n;
  }
  return sum;
}

// FLOPs of a section over `rows` of N rows, `pairs` being the sum over its segments of queries times keys.
SectionFlops section_flops(const ModelConfig& c, const Section& section, int64_t N, int64_t rows, int64_t pairs,
                           int64_t expert_rows) {
  const int64_t D = c.hidden_size, F = c.intermediate_size, P = c.predictor_width();
  const Heads heads = c.heads();
  SectionFlops flops;
  flops.rows = rows;
  if (section.attention()) {
    const int64_t key_rows = c.keeps_all_keys(section) ? N : rows;
    flops.projections = 2 * D * (rows * 2 * heads.q_cols() + key_rows * 2 * heads.kv_cols());
    flops.attention = 2 * 2 * pairs * heads.q_cols();
  }
  if (section.mlp()) {
    flops.mlp = 2 * (c.has_experts() ? expert_rows : rows) * 3 * D * F;
    flops.router = 2 * rows * D * c.experts.outputs();
  }
  if (section.routed) {
    if (c.routing.router == Router::kLearned) flops.router += 2 * N * D;
    if (c.has_predictor()) flops.router += 2 * N * (D * P + P);
  }
  return flops;
}

}  // namespace

int64_t chosen_rows(const ModelConfig& c, const Section& section, int64_t run_rows) {
  if (!section.routed) return run_rows;
  if (c.routing.router == Router::kSpaced) return spaced_rows(c.capacity(section), run_rows);
  return capacity_rows(c.capacity(section), run_rows);
}

int64_t chosen_expert_rows(const ModelConfig& c, int64_t rows) {
  const ExpertsConfig& e = c.experts;
  if (!c.has_experts()) return 0;
  if (c.experts_choose()) return e.experts * capacity_rows(e.capacity, rows);
  const int64_t kept = kept_rows({.per_row = e.per_token, .capacity_factor = e.capacity_factor}, e.experts, rows);
  return std::min(e.per_token * rows, e.experts * kept);
}

int64_t ModelFlops::forward() const {
  int64_t sum = head;
  for (const SectionFlops& b : section) sum += b.total();
  return sum;
}

ModelFlops model_flops(const ModelConfig& c, CI32 capacity_begin, CI32 segment_begin) {
  const int64_t N = capacity_begin[capacity_begin.numel() - 1];
  ModelFlops flops;
  flops.head = 2 * N * c.hidden_size * c.vocab_size;
  for (int64_t l = 0; l < c.sections(); l++) {
    const Section section = c.section(l);
    int64_t rows = 0, pairs = 0, expert_rows = 0;
    for (int64_t s = 0; s + 1 < capacity_begin.numel(); s++) {
      const int64_t n = capacity_begin[s + 1] - capacity_begin[s], k = chosen_rows(c, section, n);
      rows += k;
      pairs += k * (c.keeps_all_keys(section) ? n : k);
      expert_rows += chosen_expert_rows(c, k);
    }
    if (!section.routed) pairs = sum_of_squares(segment_begin);
    flops.section.push_back(section_flops(c, section, N, rows, pairs, expert_rows));
  }
  return flops;
}

ModelFlops model_flops(const ModelConfig& c, int64_t sequences, int64_t T) {
  int32_t one[] = {0, int32_t(T)};
  ModelFlops flops = model_flops(c, {one, {2}}, {one, {2}});
  flops.head *= sequences;
  for (SectionFlops& b : flops.section) {
    b.rows *= sequences;
    b.projections *= sequences;
    b.attention *= sequences;
    b.mlp *= sequences;
    b.router *= sequences;
  }
  return flops;
}

int64_t utilisation_flops(const ModelConfig& c, int64_t sequences, int64_t T) {
  const ModelFlops flops = model_flops(c, sequences, T);
  int64_t sum = flops.head;
  for (const SectionFlops& b : flops.section) sum += b.projections + b.attention / 2 + b.mlp;
  return 3 * sum;
}

ExecutedCount executed_section(const ModelConfig& c, const Section& section, int64_t N, const RowList& list,
                               const MemoryOptions& memory, CI32 seen, int64_t expert_rows) {
  const int64_t S = list.rows, D = c.hidden_size, F = c.intermediate_size, P = c.predictor_width();
  const int64_t through = c.has_experts() ? expert_rows : S;  // the MLP
  const Heads heads = c.heads();
  ExecutedCount count;
  const auto add_product = [&](int64_t rows, int64_t N_out, int64_t K) {
    const int64_t once = linear_multiply_adds(rows, N_out, K);
    count += {once, 2 * once};
  };
  if (section.attention()) {
    const bool all_keys = c.keeps_all_keys(section);
    add_product(S, all_keys ? heads.q_cols() : heads.qkv_cols(), D);
    add_product(S, D, heads.q_cols());
    for (int64_t g = 0; S > 0 && g + 1 < list.segment_begin.numel(); g++) {
      const int64_t begin = list.segment_begin[g], n = list.segment_begin[g + 1] - begin;
      if (all_keys) {
        const std::span<const int32_t> keys(seen.data + begin, size_t(n));
        count +=
            {attention_over_forward_multiply_adds(keys, heads), attention_over_backward_multiply_adds(keys, heads)};
      } else {
        count += {attention_forward_multiply_adds(n, heads), attention_backward_multiply_adds(n, heads)};
      }
    }
    if (all_keys) {
      const int64_t once = linear_multiply_adds(N, 2 * heads.kv_cols(), D);
      count += {once, S > 0 ? 2 * once : 0};
    }
  }
  if (section.mlp()) {
    add_product(through, 2 * F, D);
    add_product(through, D, F);
    add_product(S, c.experts.outputs(), D);  // the expert router
  }
  if (memory.recompute == Recompute::kBlocks && section.index + 1 < c.sections() && S > 0) {
    count.backward += count.forward;
    if (section.mlp() && !section.routed)  // only a gate's gradient needs the MLP's output
      count.backward -= linear_multiply_adds(through, D, F);
  }
  if (!section.routed) return count;
  if (c.routing.router == Router::kLearned) {
    count += {N * D, S * D};                          // score; its weight gradient, through the gate
    if (c.has_score_loss()) count.backward += N * D;  // and through losses on the scores
  }
  if (c.has_predictor())  // x gets no gradient
    count += {linear_multiply_adds(N, P, D) + N * P, linear_multiply_adds(N, P, D) + 2 * N * P};
  return count;
}

ExecutedCount executed_head(const ModelConfig& c, int64_t N) {
  const int64_t product = linear_multiply_adds(N, c.vocab_size, c.hidden_size);
  return {product, 2 * product};
}

ExecutedCount executed_count(const ModelConfig& c, const Activations& acts, const Batch& batch) {
  ExecutedCount count = executed_head(c, batch.rows());
  for (int64_t l = 0; l < c.sections(); l++)
    count += executed_section(c, c.section(l), batch.rows(), acts.section[size_t(l)].list, acts.memory(),
                              acts.section[size_t(l)].seen, acts.section[size_t(l)].experts.tally.assigned);
  return count;
}

Budget plan_budget(const ModelConfig& c, int64_t sequences, int64_t T, double flops) {
  const double per_sequence = double(model_flops(c, 1, T).training());
  const double per_step = per_sequence * double(sequences);
  require(flops >= per_sequence,
          "a budget of {:.3g} FLOPs is less than one sequence ({:.3g}); raise --flops or lower "
          "context or model size",
          flops, per_sequence);
  require(flops / per_sequence < 1e15,
          "a budget of {:.3g} FLOPs is {:.3g} sequences, expected less than 1e15; lower "
          "--flops",
          flops, flops / per_sequence);
  Budget budget;
  budget.steps = std::max<int64_t>(1, std::llround(flops / per_step));
  budget.flops = double(budget.steps) * per_step;
  if (budget.steps >= 1000) return budget;
  const int64_t whole = std::llround(flops / per_sequence);  // sequences in all
  budget.steps = (whole + sequences - 1) / sequences;
  budget.last_sequences = whole % sequences;
  budget.flops = double(whole) * per_sequence;
  return budget;
}

double kv_bytes_per_token(const ModelConfig& c) {
  double rows = 0;
  for (int64_t l = 0; l < c.sections(); l++)
    if (const Section section = c.section(l); section.attention())
      rows += c.keeps_all_keys(section) ? 1 : c.capacity(section);
  return rows * 2 * double(c.heads().kv_cols()) * 4;
}

}  // namespace isobath
