#include "model/config_unused.h"

#include "base/error.h"

namespace isobath {
namespace {

void check_router(const ModelConfig& c) {
  const RoutingConfig& r = c.routing;
  const RoutingConfig none;
  require(r.blocks.empty() || r.every == none.every,
          "routing.every = {} and routing.blocks are both given, and the list of blocks says which; set every = {}, "
          "or leave the list out",
          r.every, none.every);
  require(r.router_seed == none.router_seed || r.router == Router::kRandom,
          "routing.router_seed = {} with router = {}, which draws nothing; set router = random, or router_seed = 0",
          r.router_seed, name_of(r.router));
  const bool token = r.choice == Choice::kToken;
  require(r.balance_weight == none.balance_weight || token,
          "routing.balance_weight = {} with choice = expert, which takes as many rows as it should without a loss; set "
          "choice = token, or balance_weight = {}",
          r.balance_weight, none.balance_weight);
  require(r.capacity_schedule == none.capacity_schedule || r.every < 1 || c.routed_blocks() != 1,
          "routing.capacity_schedule = {} goes from the first routed block to the last, and one block is routed; set "
          "capacity_schedule = constant and leave capacity_last out, or route more blocks",
          name_of(r.capacity_schedule));
}

// What has to be set for this rule to be the model's: controls and choice = token have one of their own.
std::string setting_of(Causal rule, const RoutingConfig& r) {
  const std::string set = std::string("causal = ") + name_of(rule);
  if (has_own_rule(r.router)) return "router = learned and " + set;
  return r.choice == Choice::kToken ? "choice = expert and " + set : set;
}

void check_rule(const RoutingConfig& r) {
  const RoutingConfig none;
  const char* causal = name_of(r.causal);
  const bool own_rule = has_own_rule(r.router) || r.choice == Choice::kToken;
  require(!r.router_offset || own_rule || r.causal != Causal::kNone,
          "routing.router_offset moves a causal rule, and causal = none is none; set causal = bce, predictor or "
          "threshold, or router_offset = false");
  const std::string predictor = setting_of(Causal::kPredictor, r), bce = setting_of(Causal::kBce, r);
  require(r.predictor_width == none.predictor_width || r.causal == Causal::kPredictor,
          "routing.predictor_width = {} with causal = {}, which has no predictor; set {}, or predictor_width = 0",
          r.predictor_width, causal, predictor);
  require(r.predictor_lookback == none.predictor_lookback || r.causal == Causal::kPredictor,
          "routing.predictor_lookback = {} with causal = {}, which has no predictor; set {}, or predictor_lookback = 0",
          r.predictor_lookback, causal, predictor);
  require(r.aux_weight == none.aux_weight || r.causal == Causal::kBce,
          "routing.aux_weight = {} is of the loss of causal = bce (found {}); set {}, or aux_weight = {}", r.aux_weight,
          causal, bce, none.aux_weight);
}

void check_experts_of_rows(const ExpertsConfig& e) {
  const ExpertsConfig none;
  require(e.causal == none.causal,
          "experts.experts_causal = {} with experts_choice = token, which chooses alike when text is generated; set "
          "experts_choice = expert, or experts_causal = {}",
          name_of(e.causal), name_of(none.causal));
  require(
      e.aux_weight == none.aux_weight,
      "experts.experts_aux_weight = {} is of the rule of experts_choice = expert (found token); set experts_choice = "
      "expert, or experts_aux_weight = {}",
      e.aux_weight, none.aux_weight);
  require(
      !e.offset,
      "experts.experts_offset moves the rule of experts_choice = expert (found token); set experts_choice = expert, "
      "or experts_offset = false");
}

void check_rows_of_experts(const ExpertsConfig& e) {
  const ExpertsConfig none;
  require(e.balance_weight == none.balance_weight,
          "experts.experts_balance_weight = {} with experts_choice = expert, where every expert takes as many rows "
          "anyway; set experts_choice = token, or experts_balance_weight = {}",
          e.balance_weight, none.balance_weight);
  require(e.per_token <= e.experts || e.capacity > 0 || e.experts < 2,
          "experts.experts_per_token = {} of {} experts with experts_choice = expert: each takes every row from {} on; "
          "set experts_per_token = {}, or less",
          e.per_token, e.experts, e.experts, e.experts);
  const bool filled = e.capacity == double(e.per_token) / double(e.experts);  // as resolve does
  require(
      e.per_token == none.per_token || e.capacity == 0 || filled,
      "experts.experts_per_token = {} and experts.experts_capacity = {} both say what an expert takes; leave one out",
      e.per_token, e.capacity);
  require(e.aux_weight == none.aux_weight || e.causal == Causal::kBce,
          "experts.experts_aux_weight = {} is of experts_causal = bce (found {}); set experts_causal = bce, or "
          "experts_aux_weight = {}",
          e.aux_weight, name_of(e.causal), none.aux_weight);
  require(!e.offset || e.causal == Causal::kBce,
          "experts.experts_offset moves the rule of experts_causal = bce (found {}); set experts_causal = bce, or "
          "experts_offset = false",
          name_of(e.causal));
}

}  // namespace

void check_unused(const ModelConfig& c) {
  if (c.routing.topology != Topology::kDense) {
    check_router(c);
    check_rule(c.routing);
  }
  if (!c.has_experts()) return;
  c.experts_choose() ? check_rows_of_experts(c.experts) : check_experts_of_rows(c.experts);
}

}  // namespace isobath
