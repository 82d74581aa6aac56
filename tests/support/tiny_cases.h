// Models and batches that between them take every path of the network: values and gradients are compared on each.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/tiny_model.h"

namespace isobath::testing {

struct TinyCase {
  std::string name;
  ModelConfig config;
  std::vector<Sequence> sequences;
};

inline std::vector<TinyCase> tiny_cases() {
  std::vector<TinyCase> cases;
  const auto add = [&](const char* name, ModelConfig config, const std::vector<std::vector<int64_t>>& documents,
                       const std::function<void(ModelConfig&)>& change = {}) {
    if (change) change(config);
    std::vector<Sequence> sequences;
    for (const auto& lengths : documents)
      sequences.push_back(random_sequence(int64_t(sequences.size()) + 7, lengths, config.vocab_size));
    cases.push_back({name, config, sequences});
  };
  const std::vector<std::vector<int64_t>> even{{11}, {11}}, ragged{{9}, {1}, {13}}, packed{{5, 7}, {3, 1, 8}};
  const ModelConfig routed = tiny_routed();

  add("Dense", tiny_config(), ragged);
  add("DenseTied", tiny_config(2), even, [](auto& c) { c.tie_word_embeddings = true; });
  add("DenseDocuments", tiny_config(2), packed, [](auto& c) { c.routing.attention_scope = Scope::kDocument; });
  add("JointBce", routed, even);
  add("JointBceRagged", routed, ragged, [](auto& c) { c.routing.aux_weight = 0.7; });
  add("JointNoCausalRule", routed, ragged, [](auto& c) { c.routing.causal = Causal::kNone; });
  add("JointPredictor", routed, ragged, [](auto& c) {
    c.routing.causal = Causal::kPredictor;
    c.routing.predictor_width = 5;
  });
  add("JointThreshold", routed, ragged, [](auto& c) {
    c.routing.causal = Causal::kThreshold;
    c.routing.z_weight = 0.3;
  });
  add("JointBceAndZLoss", routed, ragged, [](auto& c) {
    c.routing.aux_weight = 0.5;
    c.routing.z_weight = 0.2;
    c.routing.router_bias = true;
  });
  const auto token_choice = [](ModelConfig& c) {
    c.routing.choice = Choice::kToken;
    c.routing.gate = Gate::kSigmoid;
    c.routing.causal = Causal::kNone;
  };
  add("TokenChoice", routed, ragged, token_choice);
  add("TokenChoiceDocuments", routed, packed, [&](auto& c) {
    token_choice(c);
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
    c.routing.router_bias = true;
    c.routing.balance_weight = 3;
    c.routing.every = 1;
  });
  add("SigmoidGateAndBias", routed, even, [](auto& c) {
    c.routing.gate = Gate::kSigmoid;
    c.routing.router_bias = true;
  });
  add("TanhGateTied", routed, ragged, [](auto& c) {
    c.routing.gate = Gate::kTanh;
    c.tie_word_embeddings = true;
  });
  add("RandomRouter", routed, ragged, [](auto& c) {
    c.routing.router = Router::kRandom;
    c.routing.causal = Causal::kNone;
  });
  add("FirstRouter", routed, ragged, [](auto& c) {
    c.routing.router = Router::kFirst;
    c.routing.causal = Causal::kNone;
  });
  add("SpacedRouterDocuments", routed, packed, [](auto& c) {
    c.routing.router = Router::kSpaced;
    c.routing.causal = Causal::kNone;
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
  });
  add("NormedRouter", routed, ragged, [](auto& c) {
    c.routing.router_input = RouterInput::kNormed;
    c.routing.router_bias = true;
    c.routing.aux_weight = 0.7;
  });
  add("NormedRoutersInARow", routed, even, [](auto& c) {  // rows that several blocks leave out
    c.num_hidden_layers = 4;
    c.routing.router_input = RouterInput::kNormed;
    c.routing.blocks = {1, 2, 3};
    c.routing.aux_weight = 0.7;
    c.routing.gate = Gate::kTanh;
  });
  add("NormedRouterWithoutALossOfItsOwn", routed, even, [](auto& c) {
    c.routing.router_input = RouterInput::kNormed;
    c.routing.causal = Causal::kNone;
  });
  add("EveryBlock", routed, ragged, [](auto& c) {
    c.routing.every = 1;
    c.routing.aux_weight = 1;
  });
  add("CapacityPerBlock", routed, even, [](auto& c) {
    c.routing.every = 1;
    c.routing.capacity = {1, 0.125, 0.5};
  });
  add("CapacityByDepth", routed, even, [](auto& c) {
    c.routing.every = 1;
    c.routing.capacity = {0.75};
    c.routing.capacity_schedule = CapacitySchedule::kCosine;
    c.routing.capacity_last = 0.25;
  });
  const auto topology = [](Topology t) {
    return [t](ModelConfig& c) {
      c.routing.topology = t;
      c.routing.aux_weight = 0.7;
    };
  };
  add("Staggered", routed, ragged, topology(Topology::kStaggered));
  add("StaggeredPredictor", routed, even, [&](auto& c) {
    topology(Topology::kStaggered)(c);
    c.routing.causal = Causal::kPredictor;
    c.routing.predictor_width = 5;
    c.routing.gate = Gate::kTanh;
  });
  const auto looking_back = [](int64_t blocks) {
    return [blocks](ModelConfig& c) {
      c.routing.causal = Causal::kPredictor;
      c.routing.predictor_width = 5;
      c.routing.predictor_lookback = blocks;
    };
  };
  const auto all_keys = [](ModelConfig& c) { c.routing.cache = KeptKeys::kAll; };
  add("JointAllKeys", routed, ragged, all_keys);
  add("EveryBlockAllKeysDocuments", routed, packed, [&](auto& c) {
    all_keys(c);
    c.routing.every = 1;
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
    c.routing.aux_weight = 0.6;
  });
  add("StaggeredAllKeys", routed, ragged, [&](auto& c) {
    all_keys(c);
    c.routing.topology = Topology::kStaggered;
    c.routing.gate = Gate::kTanh;
  });
  add("AttentionOnlyAllKeysPredictor", routed, even, [&](auto& c) {
    all_keys(c);
    c.routing.topology = Topology::kAttention;
    c.routing.causal = Causal::kPredictor;
  });
  add("NormedRouterAllKeys", routed, ragged, [&](auto& c) {
    all_keys(c);
    c.routing.router_input = RouterInput::kNormed;
    c.routing.aux_weight = 0.7;
  });
  add("PredictorLooksBack", routed, ragged, looking_back(1));
  add("PredictorsOfEveryBlockLookBackTwo", routed, packed, [&](auto& c) {
    looking_back(2)(c);
    c.routing.every = 1;
    c.routing.router_input = RouterInput::kNormed;
  });
  add("StaggeredPredictorsLookBack", routed, ragged, [&](auto& c) {
    looking_back(1)(c);
    c.routing.topology = Topology::kStaggered;
    c.routing.every = 1;
  });
  add("StaggeredEveryBlockNormedDocuments", routed, packed, [&](auto& c) {
    topology(Topology::kStaggered)(c);
    c.routing.every = 1;
    c.routing.router_input = RouterInput::kNormed;
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
  });
  add("StaggeredRandom", routed, ragged, [](auto& c) {
    c.routing.topology = Topology::kStaggered;
    c.routing.router = Router::kRandom;
    c.routing.causal = Causal::kNone;
  });
  add("StaggeredTokenChoice", routed, ragged, [&](auto& c) {
    token_choice(c);
    c.routing.topology = Topology::kStaggered;
    c.routing.balance_weight = 3;
  });
  add("AttentionOnly", routed, ragged, topology(Topology::kAttention));
  add("MlpOnly", routed, ragged, [&](auto& c) {
    topology(Topology::kMlp)(c);
    c.routing.gate = Gate::kSigmoid;
    c.routing.router_bias = true;
  });
  add("MlpOnlyThresholdLastBlock", routed, even, [&](auto& c) {
    topology(Topology::kMlp)(c);
    c.routing.blocks = {2};
    c.routing.causal = Causal::kThreshold;
  });
  const auto experts = [](int64_t E, int64_t per_token) {
    return [=](ModelConfig& c) {
      c.experts.experts = E;
      c.experts.per_token = per_token;
      c.experts.balance_weight = 0.3;
    };
  };
  const auto expert_choice = [](ModelConfig& c) {
    c.experts.experts = 3;
    c.experts.choice = Choice::kExpert;
    c.experts.capacity = 0.4;
    c.experts.aux_weight = 0.5;
  };
  add("Experts", tiny_config(2), ragged, experts(4, 2));
  add("ExpertsOnePerRow", tiny_config(2), ragged, experts(3, 1));
  add("ExpertsWithCapacity", tiny_config(2), even, [&](auto& c) {
    experts(3, 2)(c);
    c.experts.capacity_factor = 0.7;
  });
  add("ExpertsWithCapacityDocuments", tiny_config(2), packed, [&](auto& c) {
    experts(3, 1)(c);
    c.experts.capacity_factor = 0.8;
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
  });
  add("ExpertChoice", tiny_config(2), ragged, expert_choice);
  add("ExpertChoiceDocuments", tiny_config(2), packed, [&](auto& c) {
    expert_choice(c);
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
  });
  add("ExpertChoiceWithoutARule", tiny_config(2), even, [&](auto& c) {
    expert_choice(c);
    c.experts.causal = Causal::kNone;
  });
  add("ExpertChoiceCalibrated", tiny_config(2), ragged, [&](auto& c) {
    expert_choice(c);
    c.experts.offset = true;
  });
  add("IntegratedMode", tiny_config(3), ragged, [&](auto& c) {
    experts(3, 1)(c);
    c.experts.no_ops = 2;
  });
  add("IntegratedModeBounded", tiny_config(3), ragged, [&](auto& c) {
    experts(3, 1)(c);
    c.experts.no_ops = 1;
    c.experts.no_op_capacity = 0.2;
    c.experts.capacity_factor = 0.9;
  });
  add("StagedMode", routed, ragged, [&](auto& c) {
    experts(3, 2)(c);
    c.routing.aux_weight = 0.7;
  });
  add("StagedModeExpertChoicePredictor", tiny_routed(0.5), ragged, [&](auto& c) {
    expert_choice(c);
    c.routing.causal = Causal::kPredictor;
    c.routing.predictor_width = 5;
    c.routing.gate = Gate::kTanh;
  });
  add("StaggeredExperts", routed, ragged, [&](auto& c) {
    experts(3, 2)(c);
    topology(Topology::kStaggered)(c);
  });
  add("RoutedMlpsOfExpertsThatChoose", tiny_routed(0.5), even, [&](auto& c) {
    expert_choice(c);
    topology(Topology::kMlp)(c);
    c.routing.gate = Gate::kSigmoid;
  });
  add("RoutedAttentionBesideExperts", routed, ragged, [&](auto& c) {
    experts(3, 1)(c);
    topology(Topology::kAttention)(c);
  });
  add("StagedModeDropping", tiny_routed(0.5), packed, [&](auto& c) {
    experts(2, 1)(c);
    c.experts.capacity_factor = 0.5;
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
  });
  add("StagedModeAllKeys", routed, ragged, [&](auto& c) {
    experts(3, 2)(c);
    all_keys(c);
    c.routing.aux_weight = 0.7;
  });
  add("JointBceCalibrated", routed, ragged, [](auto& c) { c.routing.router_offset = true; });
  add("StaggeredThresholdCalibrated", routed, packed, [&](auto& c) {
    topology(Topology::kStaggered)(c);
    c.routing.causal = Causal::kThreshold;
    c.routing.router_offset = true;
  });
  add("StaggeredPredictorCalibrated", routed, packed, [&](auto& c) {
    topology(Topology::kStaggered)(c);
    c.routing.aux_weight = 0.01;
    c.routing.causal = Causal::kPredictor;
    c.routing.router_offset = true;
  });
  add("PredictorLooksBackCalibrated", routed, ragged, [&](auto& c) {
    looking_back(1)(c);
    c.routing.router_offset = true;
  });
  add("RandomRouterCalibrated", routed, even, [](auto& c) {
    c.routing.router = Router::kRandom;
    c.routing.causal = Causal::kNone;
    c.routing.router_offset = true;
  });
  add("ChosenBlocks", routed, ragged, [](auto& c) { c.routing.blocks = {0, 2}; });
  add("EveryOtherFromTheFirst", routed, ragged, [](auto& c) { c.routing.start = 0; });
  add("OneHead", routed, even, [](auto& c) {
    c.num_attention_heads = c.num_key_value_heads = 1;
    c.head_dim = 8;
  });
  add("BothScopesDocument", routed, packed, [](auto& c) {
    c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
    c.routing.aux_weight = 0.5;
  });
  add("AttentionScopeDocument", routed, packed, [](auto& c) { c.routing.attention_scope = Scope::kDocument; });
  add("CapacityScopeDocument", routed, packed, [](auto& c) {
    c.routing.capacity_scope = Scope::kDocument;
    c.routing.causal = Causal::kPredictor;
  });
  return cases;
}

inline std::vector<TinyCase> tiny_causal_cases() {
  std::vector<TinyCase> cases = tiny_cases();
  std::erase_if(cases, [](const TinyCase& c) { return !c.config.has_causal_rule(); });
  return cases;
}

inline std::string case_name(const ::testing::TestParamInfo<TinyCase>& info) { return info.param.name; }
inline void PrintTo(const TinyCase& c, std::ostream* out) { *out << c.name; }

}  // namespace isobath::testing
