// Which blocks are routed, with which capacity, by which rule; and what does not go together.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "base/error.h"
#include "model/config.h"
#include "model/selection_rule.h"

namespace isobath {
namespace {

// The i-th of n routed blocks lies i / (n-1) of the way from the first capacity to the last.
double scheduled_capacity(const ModelConfig& c, int64_t block) {
  int64_t before = 0;
  for (int64_t l = 0; l < block; l++) before += c.routed(l);
  const int64_t behind_first = c.routed_blocks() - 1;
  const double way = behind_first == 0 ? 0 : double(before) / double(behind_first);
  const bool linear = c.routing.capacity_schedule == CapacitySchedule::kLinear;
  const double share = linear ? way : (1 - std::cos(std::numbers::pi * way)) / 2;
  return std::min(1.0, c.routing.capacity[0] * (1 - share) + c.routing.capacity_last * share);
}

}  // namespace

bool ModelConfig::routed(int64_t block) const {
  if (routing.topology == Topology::kDense) return false;
  if (!routing.blocks.empty())
    return std::find(routing.blocks.begin(), routing.blocks.end(), block) != routing.blocks.end();
  const int64_t start = routing.start < 0 ? routing.every - 1 : routing.start;
  return block >= start && (block - start) % routing.every == 0;
}

double ModelConfig::capacity(int64_t block) const {
  if (!routed(block)) return 1;
  const bool scheduled = routing.capacity_schedule != CapacitySchedule::kConstant;
  const double configured = scheduled                      ? scheduled_capacity(*this, block)
                            : routing.capacity.size() == 1 ? routing.capacity[0]
                                                           : routing.capacity[size_t(block)];
  return routing.annealed == 1 ? configured : 1 + (configured - 1) * routing.annealed;
}

int64_t ModelConfig::routed_blocks() const {
  int64_t count = 0;
  for (int64_t l = 0; l < num_hidden_layers; l++) count += routed(l);
  return count;
}

namespace {

// Whether the halves of a routed block are sections of their own.
bool parts_blocks(Topology topology) { return topology >= Topology::kStaggered; }

}  // namespace

int64_t ModelConfig::sections() const {
  return num_hidden_layers + (parts_blocks(routing.topology) ? routed_blocks() : 0);
}

Section ModelConfig::section(int64_t index) const {
  const Topology topology = routing.topology;
  Section section{.index = index};
  for (int64_t before = index;; section.block++) {
    const bool parted = parts_blocks(topology) && routed(section.block);
    if (before < (parted ? 2 : 1)) {
      section.routed = routed(section.block);
      if (!parted) return section;
      section.part = before == 0 ? Part::kAttention : Part::kMlp;
      section.routed = topology == Topology::kStaggered || (topology == Topology::kMlp) == (section.part == Part::kMlp);
      return section;
    }
    before -= parted ? 2 : 1;
  }
}

int64_t ModelConfig::routers() const { return routed_blocks() * (routing.topology == Topology::kStaggered ? 2 : 1); }

bool ModelConfig::has_causal_rule() const { return why_no_causal_rule().empty(); }

std::string ModelConfig::why_no_causal_rule() const {
  if (routed_blocks() > 0 && !has_own_rule(routing.router) && routing.choice == Choice::kExpert &&
      routing.causal == Causal::kNone)
    return "it was trained with causal = none, so rows can only be chosen by top-k; train it with causal = bce, "
           "predictor or threshold";
  if (experts_choose() && experts.causal == Causal::kNone)
    return "it was trained with experts_causal = none, so experts can only choose by top-k; train it with "
           "experts_causal = bce";
  return "";
}

int64_t ModelConfig::predictor_width() const {
  return routing.predictor_width > 0 ? routing.predictor_width : std::max<int64_t>(16, hidden_size / 16);
}

namespace {

// What no model has, whatever of it is routed.
void check_values(const RoutingConfig& r) {
  for (const double capacity : r.capacity)
    require(capacity > 0 && capacity <= 1,
            "routing.capacity is {}, expected above 0 and at most 1 (0.125 is the paper's)", capacity);
  require(r.every >= 1, "routing.every is {}, expected 1 or more (2: every other block)", r.every);
  find_selection_rule(r.select);  // refuses a name that it does not know
  require(r.aux_weight >= 0, "routing.aux_weight is {}, expected 0 or more", r.aux_weight);
  require(r.balance_weight >= 0, "routing.balance_weight is {}, expected 0 or more", r.balance_weight);
  require(r.z_weight >= 0, "routing.z_weight is {}, expected 0 or more", r.z_weight);
  require(r.predictor_width >= 0 && r.predictor_width <= 1 << 20, "routing.predictor_width is {}, expected 0 to {}",
          r.predictor_width, 1 << 20);
}

void check_capacity(const RoutingConfig& r, int64_t L) {
  require(r.capacity.size() == 1 || int64_t(r.capacity.size()) == L,
          "routing.capacity has {} values, expected one, or one per block ({})", r.capacity.size(), L);
  require(r.annealed >= 0 && r.annealed <= 1, "annealed is {}, expected a share from 0 to 1", r.annealed);
  const bool scheduled = r.capacity_schedule != CapacitySchedule::kConstant;
  require(scheduled || r.capacity_last == 0,
          "routing.capacity_last = {} without a schedule; set capacity_schedule = linear or cosine", r.capacity_last);
  if (!scheduled) return;
  require(r.capacity.size() == 1, "routing.capacity names every block and capacity_schedule = {} does too; use one",
          name_of(r.capacity_schedule));
  require(r.capacity_last > 0 && r.capacity_last <= 1,
          "routing.capacity_last is {}, expected above 0 and at most 1: capacity_schedule = {} ends there",
          r.capacity_last, name_of(r.capacity_schedule));
}

void check_blocks(const ModelConfig& c) {
  const RoutingConfig& r = c.routing;
  const int64_t L = c.num_hidden_layers;
  require(r.start >= -1 && r.start < L,
          "routing.start is {}, expected a block from 0 to {} (num_hidden_layers is {}), or -1 for every - 1", r.start,
          L - 1, L);
  require(r.start < 0 || r.blocks.empty(),
          "routing.start = {} and routing.blocks are both given; the list of blocks says where they start", r.start);
  for (const int64_t l : r.blocks)
    require(l >= 0 && l < L, "routing.blocks names block {}, expected 0 to {} (num_hidden_layers is {})", l, L - 1, L);
  require(std::set(r.blocks.begin(), r.blocks.end()).size() == r.blocks.size(), "routing.blocks names a block twice");
  require(c.routed_blocks() > 0,
          "topology {} routes no block: every = {} with {} blocks; lower every, name blocks, or use topology = dense",
          name_of(r.topology), r.every, L);
}

// A router without weights: a control that the learned one is compared with.
void check_control(const RoutingConfig& r) {
  const char* router = name_of(r.router);
  require(r.causal == Causal::kNone, "router = {} has a causal rule of its own; set causal = none (found {})", router,
          name_of(r.causal));
  require(!r.router_bias, "router = {} has no bias; set router_bias = false", router);
  require(r.router_input == RouterInput::kRaw, "router = {} reads no rows; set router_input = raw (found {})", router,
          name_of(r.router_input));
  require(r.z_weight == 0, "router = {} has no scores to keep small; set z_weight = 0 (found {})", router, r.z_weight);
  if (r.router == Router::kRandom) return;
  require(r.gate == Gate::kRaw, "router = {} has the gate 1 whatever a row is; set gate = raw (found {})", router,
          name_of(r.gate));
  require(r.capacity_scope == r.attention_scope,
          "router = {} goes by positions, which restart where attention does; set capacity_scope = {}, as "
          "attention_scope",
          router, name_of(r.attention_scope));
}

void check_token_choice(const RoutingConfig& r) {
  require(r.router == Router::kLearned, "choice = token needs scores that are learned; set router = learned (found {})",
          name_of(r.router));
  require(r.gate == Gate::kSigmoid,
          "choice = token multiplies by the probability of its choice; set gate = sigmoid (found {})", name_of(r.gate));
  require(r.causal == Causal::kNone, "choice = token has a causal rule of its own, r > 0; set causal = none (found {})",
          name_of(r.causal));
}

}  // namespace

void check_routing(const ModelConfig& c) {
  const RoutingConfig& r = c.routing;
  check_values(r);
  if (r.topology == Topology::kDense) return;
  check_capacity(r, c.num_hidden_layers);
  check_blocks(c);
  if (has_own_rule(r.router)) check_control(r);
  if (r.choice == Choice::kToken) check_token_choice(r);
  if (find_selection_rule(r.select) != nullptr) {
    require(r.choice == Choice::kExpert, "routing.select = {} chooses rows for a block; set choice = expert (found {})",
            r.select, name_of(r.choice));
    require(r.router == Router::kLearned || r.router == Router::kRandom,
            "routing.select = {} goes by scores, which router = {} has not", r.select, name_of(r.router));
    require(r.causal != Causal::kThreshold,
            "routing.select = {} may take a row with a lower score than one it leaves, and causal = threshold parts "
            "scores; set causal = bce or predictor",
            r.select);
  }
  require(r.cache == KeptKeys::kRouted || r.topology != Topology::kMlp,
          "routing.cache = all with topology = mlp, whose attention sees all rows anyway; set cache = routed");
  require(r.predictor_lookback >= 0 && r.predictor_lookback < c.num_hidden_layers,
          "routing.predictor_lookback is {}, expected 0 to {} (num_hidden_layers is {})", r.predictor_lookback,
          c.num_hidden_layers - 1, c.num_hidden_layers);
}

}  // namespace isobath
