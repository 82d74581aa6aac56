// Runs of every kind, for what must go on to the bit after a stop.
#pragma once

#include <functional>

#include "train_support.h"

namespace isobath::testing {

struct ResumeCase {
  const char* name;
  std::function<void(RunConfig&)> change;
};

inline const ResumeCase kCases[] = {
    {"Dense", [](RunConfig& c) { c.model.routing.topology = Topology::kDense; }},
    {"Bce", [](RunConfig&) {}},
    {"NormedRouter", [](RunConfig& c) { c.model.routing.router_input = RouterInput::kNormed; }},
    {"Predictor", [](RunConfig& c) { c.model.routing.causal = Causal::kPredictor; }},
    {"Threshold",
     [](RunConfig& c) {
       c.model.routing.causal = Causal::kThreshold;
       c.model.routing.z_weight = 0.01;
     }},
    {"AnnealedCapacity",
     [](RunConfig& c) {
       c.train.capacity_anneal = 0.8;
       c.model.routing.causal = Causal::kThreshold;
       c.train.capacity_anneal_shape = AnnealShape::kCosine;
     }},
    {"TrainOnly", [](RunConfig& c) { c.train.train_only = "router,*.mlp.*"; }},
    {"TokenChoice",
     [](RunConfig& c) {
       c.model.routing.choice = Choice::kToken;
       c.model.routing.gate = Gate::kSigmoid;
       c.model.routing.causal = Causal::kNone;
     }},
    {"StaggeredThreshold",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kStaggered;
       c.model.routing.causal = Causal::kThreshold;
     }},
    {"AttentionOnlyPredictor",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kAttention;
       c.model.routing.causal = Causal::kPredictor;
     }},
    {"MlpOnly", [](RunConfig& c) { c.model.routing.topology = Topology::kMlp; }},
    {"RandomRouter",
     [](RunConfig& c) {
       c.model.routing.router = Router::kRandom;
       c.model.routing.causal = Causal::kNone;
     }},
    {"SpacedRouter",
     [](RunConfig& c) {
       c.model.routing.router = Router::kSpaced;
       c.model.routing.causal = Causal::kNone;
     }},
    {"DocumentScope",
     [](RunConfig& c) {
       c.model.routing.capacity_scope = c.model.routing.attention_scope = Scope::kDocument;
       c.data.max_documents = 3;
     }},
    {"StagedModeAnnealed",
     [](RunConfig& c) {
       c.model.experts.experts = 3;
       c.train.capacity_anneal = 0.8;
     }},
    {"ExpertsDropping",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kDense;
       c.model.experts.experts = 3;
       c.model.experts.capacity_factor = 0.7;
       c.data.micro_batch = 3;
     }},
    {"ExpertChoice",
     [](RunConfig& c) {
       c.model.experts.experts = 3;
       c.model.experts.choice = Choice::kExpert;
     }},
    {"IntegratedMode",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kDense;
       c.model.experts.experts = 3;
       c.model.experts.per_token = 1;
       c.model.experts.no_ops = 1;
       c.model.experts.no_op_capacity = 0.3;
     }},
    {"MicroBatches", [](RunConfig& c) { c.data.micro_batch = 3; }},
    {"Bf16", [](RunConfig& c) { c.train.memory.storage = Storage::kBf16; }},
    {"ShortLastStep",
     [](RunConfig& c) {
       c.train.steps = 0;
       c.train.tokens = 24 * 38;  // nine steps of 4 sequences and one of 2
     }},
};

}  // namespace isobath::testing
