// Selection rules of one's own: which k rows a router takes in training, in place of top-k. A program that embeds the
// library adds them by name (docs/add-a-routing-rule.md); `select = "name"` of [routing] then asks for one, and plan,
// FLOPs, losses, causal rules, checkpoints and generation go on as with top-k.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tensor/batch.h"

namespace isobath {

// The rows of one capacity run, in order.
struct ScoredRun {
  std::span<const float> score;       // (T), finite
  std::span<const int32_t> position;  // (T)
  std::span<int32_t> scratch;         // (T)
};

// Fills `chosen` with k different places in the run, counted from 0, in any order. A pure function of the run, so that
// a sequence is chosen from alike whatever stands beside it; allocates nothing.
using SelectionRule = void (*)(std::span<int32_t> chosen, const ScoredRun& run);

// Before the first model that names it is made. Throws Error if the name is taken.
void add_selection_rule(const std::string& name, SelectionRule rule);
// Throws Error that lists the known names; "top_k" gives null: the built-in.
SelectionRule find_selection_rule(std::string_view name);

// As select_top_k (ops/select.h), by a rule. Throws Error if the rule chose a row twice, or none of the run.
int64_t select_by_rule(I32 index, I32 chosen_begin, SelectionRule rule, CF32 score, const Batch& batch, double capacity,
                       I32 scratch);

}  // namespace isobath
