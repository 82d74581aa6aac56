// Every kind of run that has to go on to the bit.
#pragma once

#include <functional>

#include "train/options.h"

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
    {"MicroBatches", [](RunConfig& c) { c.data.micro_batch = 3; }},
    {"Bf16", [](RunConfig& c) { c.train.memory.storage = Storage::kBf16; }},
    {"ShortLastStep",
     [](RunConfig& c) {
       c.train.steps = 0;
       c.train.tokens = 24 * 38;  // nine steps of 4 sequences and one of 2
     }},
    {"AllKeys", [](RunConfig& c) { c.model.routing.cache = KeptKeys::kAll; }},
    {"PredictorLooksBack",
     [](RunConfig& c) {
       c.model.routing.causal = Causal::kPredictor;
       c.model.routing.predictor_lookback = 2;
     }},
    {"FirstRouter",
     [](RunConfig& c) {
       c.model.routing.router = Router::kFirst;
       c.model.routing.causal = Causal::kNone;
     }},
    {"CapacityPerBlock",
     [](RunConfig& c) {
       c.model.routing.every = 1;
       c.model.routing.capacity = {1, 0.5, 0.125, 0.25};
     }},
    {"CapacityByDepth",
     [](RunConfig& c) {
       c.model.routing.capacity_schedule = CapacitySchedule::kLinear;
       c.model.routing.capacity_last = 0.75;
     }},
    {"StaggeredRandom",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kStaggered;
       c.model.routing.router = Router::kRandom;
       c.model.routing.causal = Causal::kNone;
     }},
    {"StaggeredTokenChoice",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kStaggered;
       c.model.routing.choice = Choice::kToken;
       c.model.routing.gate = Gate::kSigmoid;
       c.model.routing.causal = Causal::kNone;
     }},
    {"StaggeredAnnealedPredictorOfNormedRows",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kStaggered;
       c.model.routing.router_input = RouterInput::kNormed;
       c.model.routing.causal = Causal::kPredictor;
       c.train.capacity_anneal = 0.8;
     }},
    {"StagedAnnealed",
     [](RunConfig& c) {
       c.model.experts = {.experts = 3};
       c.train.capacity_anneal = 0.8;
     }},
    {"StagedAnnealedThreshold",
     [](RunConfig& c) {
       c.model.experts = {.experts = 3, .per_token = 1, .capacity_factor = 0.6};
       c.model.routing.causal = Causal::kThreshold;
       c.train.capacity_anneal = 0.8;
     }},
    {"StagedExpertChoicePredictor",
     [](RunConfig& c) {
       c.model.experts = {.experts = 3, .choice = Choice::kExpert};
       c.model.routing.causal = Causal::kPredictor;
     }},
    {"StagedRandom",
     [](RunConfig& c) {
       c.model.experts = {.experts = 3};
       c.model.routing.router = Router::kRandom;
       c.model.routing.causal = Causal::kNone;
     }},
    {"StaggeredExpertChoiceThreshold",
     [](RunConfig& c) {
       c.model.experts = {.experts = 3, .choice = Choice::kExpert};
       c.model.routing.topology = Topology::kStaggered;
       c.model.routing.causal = Causal::kThreshold;
     }},
    {"IntegratedBounded",
     [](RunConfig& c) {
       c.model.routing.topology = Topology::kDense;
       c.model.experts = {.experts = 3, .per_token = 1, .capacity_factor = 0.9, .no_ops = 1, .no_op_capacity = 0.2};
     }},
};

}  // namespace isobath::testing
