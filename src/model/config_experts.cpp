// Which mixtures of experts make sense, and with what they go together.
#include "base/error.h"
#include "model/config.h"
#include "ops/expert_choice.h"

namespace isobath {
namespace {

void check_without(const ExpertsConfig& e) {
  require(e.no_ops == 0, "experts.no_ops is {}, but there are no experts beside them; set experts (--experts 8)",
          e.no_ops);
  require(e.capacity_factor == 0 && e.capacity == 0 && e.no_op_capacity == 0,
          "a capacity of experts is given, but there are no experts; set experts (--experts 8)");
}

void check_token(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  require(e.per_token == 1 || e.per_token == 2, "experts.experts_per_token is {}, expected 1 or 2", e.per_token);
  require(e.per_token <= e.experts, "experts.experts_per_token = 2 of one expert; set experts_per_token = 1");
  require(e.capacity == 0,
          "experts.experts_capacity = {} is what an expert takes with experts_choice = expert; with token set "
          "experts_capacity_factor",
          e.capacity);
  require(e.capacity_factor >= 0, "experts.experts_capacity_factor is {}, expected 0 (no dropping) or more",
          e.capacity_factor);
  require(e.no_op_capacity >= 0 && e.no_op_capacity < 1,
          "experts.no_op_capacity is {}, expected a share from 0 (no bound) to less than 1", e.no_op_capacity);
  require(e.no_ops > 0 || e.no_op_capacity == 0, "experts.no_op_capacity = {} without no-ops; set no_ops = 1",
          e.no_op_capacity);
  if (e.no_ops == 0) return;
  require(e.per_token == 1,
          "experts.no_ops = {} needs experts_per_token = 1 (found {}): a row's p decides between an expert and nothing",
          e.no_ops, e.per_token);
  require(
      c.routed_blocks() == 0,
      "experts.no_ops = {} (integrated) with topology = {} (staged): two routers would let the same token skip; set "
      "topology = dense, or no_ops = 0",
      e.no_ops, name_of(c.routing.topology));
}

void check_expert(const ExpertsConfig& e) {
  require(e.no_ops == 0,
          "experts.no_ops = {} with experts_choice = expert: a row that no expert takes skips already; set no_ops = 0",
          e.no_ops);
  require(e.capacity_factor == 0,
          "experts.experts_capacity_factor = {} bounds what rows choose; with experts_choice = expert set "
          "experts_capacity",
          e.capacity_factor);
  require(e.per_token >= 1,
          "experts.experts_per_token is {}, expected 1 or more: without experts_capacity each expert takes "
          "experts_per_token / experts of the rows",
          e.per_token);
  require(e.capacity > 0 && e.capacity <= 1, "experts.experts_capacity is {}, expected above 0 and at most 1",
          e.capacity);
  require(e.causal == Causal::kNone || e.causal == Causal::kBce,
          "experts.experts_causal = {} is not built for experts; expected none or bce", name_of(e.causal));
}

}  // namespace

void check_experts(const ModelConfig& c) {
  const ExpertsConfig& e = c.experts;
  require(e.experts >= 0 && e.no_ops >= 0 && e.experts <= kMostExpertOutputs && e.no_ops <= kMostExpertOutputs &&
              e.outputs() <= kMostExpertOutputs,
          "{} experts and {} no-ops, expected at most {} together", e.experts, e.no_ops, kMostExpertOutputs);
  require(e.balance_weight >= 0, "experts.experts_balance_weight is {}, expected 0 or more", e.balance_weight);
  require(e.aux_weight >= 0, "experts.experts_aux_weight is {}, expected 0 or more", e.aux_weight);
  if (e.experts == 0) return check_without(e);
  require(e.outputs() > 1,
          "one expert takes every row with weight 1, which is the plain MLP; set experts = 0, or 2 and more");
  e.choice == Choice::kToken ? check_token(c) : check_expert(e);
}

}  // namespace isobath
