// Every way to have experts, for what must hold in all of them.
#pragma once

#include <ostream>

#include "model/config.h"

namespace isobath::testing {

struct ExpertVariant {
  const char* name;
  ExpertsConfig experts;
  bool staged = false;  // in routed blocks; else no block is routed
};
inline const ExpertVariant kExpertVariants[] = {
    {"TwoPerToken", {.experts = 4}},
    {"OnePerToken", {.experts = 4, .per_token = 1}},
    {"Dropping", {.experts = 4, .capacity_factor = 1}},
    {"LoweredCapacity", {.experts = 4, .per_token = 1, .capacity_factor = 0.5}},
    {"ExpertChoice", {.experts = 4, .choice = Choice::kExpert}},
    {"ExpertChoiceWithoutARule", {.experts = 4, .choice = Choice::kExpert, .capacity = 0.25, .causal = Causal::kNone}},
    {"ExpertChoiceCalibrated", {.experts = 4, .choice = Choice::kExpert, .offset = true}},
    {"Integrated", {.experts = 3, .per_token = 1, .no_ops = 1}},
    {"IntegratedBounded", {.experts = 3, .per_token = 1, .no_ops = 2, .no_op_capacity = 0.2}},
    {"Staged", {.experts = 3}, true},
    {"StagedExpertChoice", {.experts = 3, .choice = Choice::kExpert}, true},
    {"StagedCalibrated", {.experts = 3, .choice = Choice::kExpert, .offset = true}, true},
    {"StagedLoweredCapacity", {.experts = 3, .per_token = 1, .capacity_factor = 0.6}, true},
};
inline void PrintTo(const ExpertVariant& v, std::ostream* out) { *out << v.name; }

}  // namespace isobath::testing
