// The shape of a model, as data. Names are those of config.json (Hugging Face Llama) and of its object
// "mixture_of_depths"; the TOML sections [model] and [routing] and the flags use the same ones.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ops/attention.h"
#include "ops/frozen_linear.h"
#include "ops/router.h"
#include "tensor/batch.h"

namespace isobath {

enum class Topology : uint8_t {
  kDense,
  kJoint,      // attention and MLP of a routed block together
  kStaggered,  // attention and MLP of a routed block, each with a router of its own
  kAttention,  // its attention only
  kMlp,        // its MLP only
};
enum class Router : uint8_t {
  kLearned,
  kRandom,  // the rest are controls without weights: scores that know nothing of the text,
  kFirst,   // the first rows,
  kSpaced,  // rows at equal distances
};
// What a router reads of a row: the residual stream as it is, or divided by its root mean square.
enum class RouterInput : uint8_t { kRaw, kNormed };
// Who chooses: the block its rows (top-k), or each row for itself, up to the block's capacity.
enum class Choice : uint8_t { kExpert, kToken };
// What later rows find of a row that a router left out: nothing, or its keys and values as of any other row.
enum class KeptKeys : uint8_t { kRouted, kAll };
enum class CapacitySchedule : uint8_t { kConstant, kLinear, kCosine };
enum class Causal : uint8_t { kNone, kBce, kPredictor, kThreshold };

// The words for an enum in files and flags, in the order of its values.
template <class E>
inline constexpr std::array<const char*, 0> kNames{};
template <>
inline constexpr std::array kNames<Topology>{"dense", "joint", "staggered", "attention", "mlp"};
template <>
inline constexpr std::array kNames<Router>{"learned", "random", "first", "spaced"};
template <>
inline constexpr std::array kNames<RouterInput>{"raw", "normed"};
template <>
inline constexpr std::array kNames<Choice>{"expert", "token"};
template <>
inline constexpr std::array kNames<KeptKeys>{"routed", "all"};
template <>
inline constexpr std::array kNames<CapacitySchedule>{"constant", "linear", "cosine"};
template <>
inline constexpr std::array kNames<Causal>{"none", "bce", "predictor", "threshold"};
template <>
inline constexpr std::array kNames<Gate>{"raw", "sigmoid", "tanh"};
template <>
inline constexpr std::array kNames<Scope>{"sequence", "document"};

// Whether a router needs no training to choose causally.
inline bool has_own_rule(Router router) { return router != Router::kLearned; }

template <class T>
concept Enum = std::is_enum_v<T>;

template <Enum E>
const char* name_of(E value) {
  return kNames<E>[size_t(value)];
}
// None: no such word.
template <Enum E>
std::optional<E> parse_name(std::string_view word) {
  const auto found = std::find(kNames<E>.begin(), kNames<E>.end(), word);
  return found == kNames<E>.end() ? std::nullopt : std::optional(E(found - kNames<E>.begin()));
}
// "raw, sigmoid, tanh", for messages
template <Enum E>
std::string names_of() {
  std::string all;
  for (const char* name : kNames<E>) all += (all.empty() ? "" : ", ") + std::string(name);
  return all;
}

// What stands between two residual adds: a block, or half of one where the halves are routed apart. The model is a list
// of sections; weights, buffers, caches and statistics have one entry for each.
enum class Part : uint8_t { kBlock, kAttention, kMlp };
template <>
inline constexpr std::array kNames<Part>{"block", "attention", "mlp"};

struct Section {
  int64_t index = 0;  // in the list
  int64_t block = 0;
  Part part = Part::kBlock;
  bool routed = false;
  bool attention() const { return part != Part::kMlp; }
  bool mlp() const { return part != Part::kAttention; }
  std::string label() const {  // "3", "3 attention"
    return std::to_string(block) + (part == Part::kBlock ? "" : std::string(" ") + name_of(part));
  }
  std::string name() const { return "block " + label(); }
  bool operator==(const Section&) const = default;
};

struct RoutingConfig {
  Topology topology = Topology::kDense;
  int64_t every = 2;                    // 2: blocks 1, 3, 5, ... are routed, block 0 is dense
  int64_t start = -1;                   // the first routed block of every n-th; -1: every - 1
  std::vector<int64_t> blocks;          // instead of every: the routed blocks, counted from 0
  std::vector<double> capacity{0.125};  // share of rows that a routed block takes: one for all, or one per block
  CapacitySchedule capacity_schedule = CapacitySchedule::kConstant;
  double capacity_last = 0;  // of the last routed block, with a schedule
  double annealed = 1;  // of the way from capacity 1 to these: no option but a model's state (train.capacity_anneal)
  Choice choice = Choice::kExpert;
  std::string select = "top_k";  // of choice = expert: model/selection_rule.h
  double balance_weight = 1;     // of choice = token
  Gate gate = Gate::kRaw;
  Router router = Router::kLearned;
  int64_t router_seed = 0;  // of router = random
  RouterInput router_input = RouterInput::kRaw;
  bool router_bias = false;
  bool router_offset = false;  // `isobath calibrate` sets it
  KeptKeys cache = KeptKeys::kRouted;
  Causal causal = Causal::kBce;
  double aux_weight = 0.01;
  double z_weight = 0;
  int64_t predictor_width = 0;     // 0: max(16, D/16)
  int64_t predictor_lookback = 0;  // blocks
  Scope capacity_scope = Scope::kSequence, attention_scope = Scope::kSequence;
};

// The MLP of every block as a mixture of experts.
struct ExpertsConfig {
  int64_t experts = 0;             // E; 0: one MLP, and nothing of the rest means anything
  Choice choice = Choice::kToken;  // who chooses: each row its experts, or each expert its rows
  int64_t per_token = 2;           // of choice = token: 1 (weight p) or 2 (weights over their sum)
  double capacity_factor = 0;      // of choice = token, in training; 0: nothing is dropped
  double capacity = 0;             // of choice = expert: share of rows that each takes; 0: per_token / E
  int64_t no_ops = 0;              // Z, of choice = token: outputs beside the experts that add nothing
  double no_op_capacity = 0;       // in training: largest share of rows that take a no-op; 0: no bound
  double balance_weight = 0.01;    // of choice = token
  Causal causal = Causal::kBce;    // of choice = expert
  double aux_weight = 0.01;        // of causal = bce
  bool offset = false;             // of causal = bce: `isobath calibrate` sets it
  int64_t outputs() const { return experts + no_ops; }
};

struct ModelConfig {
  int64_t vocab_size = 0;               // from the tokenizer
  int64_t hidden_size = 64;             // D
  int64_t intermediate_size = 0;        // F; 0: 8/3 D, rounded up to a multiple of 16
  int64_t num_hidden_layers = 4;        // L
  int64_t num_attention_heads = 2;      // H
  int64_t num_key_value_heads = 0;      // G; 0: H
  int64_t head_dim = 0;                 // K; 0: D / H
  int64_t max_position_embeddings = 0;  // 0: the context trained on
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000;
  bool tie_word_embeddings = false;
  RoutingConfig routing;
  ExpertsConfig experts;

  // Set: the matrices are stored in this format and are used in no other; nothing can be trained from them.
  std::optional<WeightFormat> quantized = std::nullopt;
  int64_t bos_token_id = -1;
  std::vector<int64_t> eos_token_id;
  nlohmann::json other = nlohmann::json::object();  // keys of config.json that are not ours to interpret: kept

  Heads heads() const { return {num_attention_heads, num_key_value_heads, head_dim}; }
  bool routed(int64_t block) const;  // as a whole or in part
  // At present: 1 for dense blocks, else what [routing] says, of which annealing may have gone a part of the way.
  double capacity(int64_t block) const;
  double capacity(const Section& section) const { return section.routed ? capacity(section.block) : 1; }
  int64_t routed_blocks() const;
  int64_t sections() const;
  Section section(int64_t index) const;
  int64_t routers() const;  // routed sections
  bool has_predictor() const { return routed_blocks() > 0 && routing.causal == Causal::kPredictor; }
  // Whether a section's queries, of the routed rows, see keys and values of all rows.
  bool keeps_all_keys(const Section& section) const {
    return section.routed && section.attention() && routing.cache == KeptKeys::kAll;
  }
  bool keeps_all_keys() const { return routed_blocks() > 0 && routing.cache == KeptKeys::kAll; }
  // Whether predictors read the stream before the router does: the input of the block `predictor_lookback` blocks
  // earlier (of block 0 at the least), so that the choice is known ahead.
  bool predictors_look_back() const { return has_predictor() && routing.predictor_lookback > 0; }
  int64_t predictor_reads(const Section& section) const {
    return section.block - std::min(routing.predictor_lookback, section.block);
  }
  bool has_threshold() const { return routed_blocks() > 0 && routing.causal == Causal::kThreshold; }
  bool has_causal_rule() const;            // of its routed blocks and of experts that choose
  std::string why_no_causal_rule() const;  // what is missing and the way out; empty if nothing is
  bool has_experts() const { return experts.experts > 0; }
  bool experts_choose() const { return has_experts() && experts.choice == Choice::kExpert; }
  // Whether experts take other rows in training than in generation.
  bool experts_differ() const {
    return has_experts() && (experts_choose() || experts.capacity_factor > 0 || experts.no_op_capacity > 0);
  }
  // Whether a program that knows Mixtral runs this model: nothing is routed, dropped or skipped.
  bool is_mixtral() const {
    return has_experts() && routed_blocks() == 0 && !experts_differ() && experts.no_ops == 0 && experts.per_token == 2;
  }
  bool norms_router_input() const {
    return routed_blocks() > 0 && routing.router == Router::kLearned && routing.router_input == RouterInput::kNormed;
  }
  // Whether the backward pass needs the stream as it was at every block.
  bool restores_stream() const { return norms_router_input() || predictors_look_back() || keeps_all_keys(); }
  // Whether a loss beside the language model's has a gradient for the score of every row, chosen or not.
  bool has_score_loss() const {
    return routing.causal == Causal::kBce || routing.z_weight > 0 || routing.choice == Choice::kToken;
  }
  int64_t predictor_width() const;
};

// Every option once: reading TOML, flags, help, config.json and the printed banner walk this list.
template <class Config, class Visit>
void for_each_model_option(Config& c, Visit visit) {
  visit("model", "hidden_size", c.hidden_size, "model width D");
  visit("model", "intermediate_size", c.intermediate_size, "MLP width F; 0: 8/3 D rounded up to a multiple of 16");
  visit("model", "num_hidden_layers", c.num_hidden_layers, "blocks L");
  visit("model", "num_attention_heads", c.num_attention_heads, "query heads H");
  visit("model", "num_key_value_heads", c.num_key_value_heads, "key/value heads G; 0: as many as query heads");
  visit("model", "head_dim", c.head_dim, "head size K; 0: D / H");
  visit("model", "max_position_embeddings", c.max_position_embeddings, "largest context; 0: the context trained on");
  visit("model", "rms_norm_eps", c.rms_norm_eps, "added to the mean square in the norms");
  visit("model", "rope_theta", c.rope_theta, "base of the rotary frequencies");
  visit("model", "tie_word_embeddings", c.tie_word_embeddings, "the head is the embedding table");
}
template <class Config, class Visit>
void for_each_routing_option(Config& r, Visit visit) {
  visit("routing", "topology", r.topology,
        "what is routed of a routed block: attention and MLP together (joint), each apart (staggered), or one of them");
  visit("routing", "every", r.every, "route every n-th block (2: blocks 1, 3, 5, ...)");
  visit("routing", "start", r.start, "the first block of every n-th, counted from 0; -1: every - 1");
  visit("routing", "blocks", r.blocks, "route these blocks, counted from 0, instead of every n-th");
  visit("routing", "capacity", r.capacity, "share of tokens a routed block takes, in (0,1]; one, or one per block");
  visit("routing", "capacity_schedule", r.capacity_schedule,
        "how capacity goes by depth from the first routed block to the last: linear or cosine to capacity_last");
  visit("routing", "capacity_last", r.capacity_last, "capacity of the last routed block, with a schedule");
  visit("routing", "choice", r.choice, "expert: a block takes its best rows (top-k); token: each row goes where r > 0");
  visit("routing", "select", r.select,
        "how a block chooses its rows (choice = expert): top_k, or a rule that the program added");
  visit("routing", "balance_weight", r.balance_weight,
        "weight of the squared distance of mean sigmoid(r) from the capacity (choice = token)");
  visit("routing", "gate", r.gate, "how the router weight multiplies the block's output");
  visit("routing", "router", r.router, "learned, or a control: random, first rows, evenly spaced rows");
  visit("routing", "router_seed", r.router_seed, "of router = random; 0: the seed of the run");
  visit("routing", "router_input", r.router_input,
        "what the score is a product with: the residual stream, or the stream divided by its root mean square");
  visit("routing", "router_bias", r.router_bias, "add a bias to the router score");
  visit("routing", "router_offset", r.router_offset,
        "add a number per block to the causal rule's logit; isobath calibrate finds it, training leaves it");
  visit("routing", "cache", r.cache,
        "what routed rows attend to: the other routed rows, or all rows, whose keys and values are then computed and "
        "kept");
  visit("routing", "causal", r.causal, "rule that replaces top-k when text is generated");
  visit("routing", "aux_weight", r.aux_weight, "weight of the router's cross-entropy (causal = bce)");
  visit("routing", "z_weight", r.z_weight, "weight of the mean square of the router scores, which keeps them small");
  visit("routing", "predictor_width", r.predictor_width, "hidden width of the predictor; 0: max(16, D/16)");
  visit("routing", "predictor_lookback", r.predictor_lookback,
        "the predictor reads the input of the block so many blocks earlier; 0: what the router reads");
  visit("routing", "capacity_scope", r.capacity_scope,
        "what competes for capacity: the sequence, or each document in it");
  visit("routing", "attention_scope", r.attention_scope, "what attends to each other: the sequence, or each document");
}

template <class Config, class Visit>
void for_each_experts_option(Config& e, Visit visit) {
  visit("experts", "experts", e.experts,
        "make the MLP of every block so many experts of intermediate_size; 0: one MLP");
  visit("experts", "experts_choice", e.choice,
        "token: each row takes its best experts; expert: each expert its best rows");
  visit("experts", "experts_per_token", e.per_token,
        "experts of a row (token): 2, weighted by their softmax over the two, or 1, weighted by its p");
  visit("experts", "experts_capacity_factor", e.capacity_factor,
        "in training each expert keeps this times its even share of a sequence's rows (token); 0: nothing is dropped");
  visit("experts", "experts_capacity", e.capacity,
        "share of a sequence's rows that each expert takes (expert); 0: experts_per_token / experts");
  visit("experts", "no_ops", e.no_ops, "outputs of the expert router that skip the MLP (token, one expert per row)");
  visit("experts", "no_op_capacity", e.no_op_capacity,
        "in training, the largest share of a sequence's rows that skip it; 0: as many as like to");
  visit("experts", "experts_balance_weight", e.balance_weight,
        "weight of the loss that evens out the use of the outputs (token)");
  visit("experts", "experts_causal", e.causal, "rule by which experts choose when text is generated (expert)");
  visit("experts", "experts_aux_weight", e.aux_weight, "weight of that rule's cross-entropy");
  visit("experts", "experts_offset", e.offset,
        "add a number per expert to that rule's logit; isobath calibrate finds it, training leaves it");
}

// What resolve checks of [routing] and [experts], once the sizes are known.
void check_routing(const ModelConfig& config);
void check_experts(const ModelConfig& config);

// Fills what is 0 with its default for a context of T tokens, and checks everything.
// Throws Error naming key, value and what was expected.
void resolve(ModelConfig& config, int64_t T);

// config.json. Reading keeps unknown keys and refuses by name the ones that change the mathematics and are not built.
nlohmann::json to_json(const ModelConfig& config);
ModelConfig config_from_json(const nlohmann::json& json, const std::string& path);
ModelConfig read_config(const std::filesystem::path& file);

// Throws Error, with the way out, if the model of this folder is quantized: `what` needs its weights in fp32.
void require_not_quantized(const ModelConfig& config, const std::filesystem::path& folder, std::string_view what);

// The same model without routing: the twin that figures are compared with.
ModelConfig dense_twin(ModelConfig config);

}  // namespace isobath
