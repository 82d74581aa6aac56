// The variants of experts, in tiny models.
#pragma once

#include "generate/tiny_model.h"
#include "support/expert_variants.h"

namespace isobath::testing {

inline ModelConfig tiny_config(const ExpertVariant& v) {
  ModelConfig c = tiny_config();
  c.experts = v.experts;
  if (!v.staged) c.routing = {};
  resolve(c, c.max_position_embeddings);
  return c;
}

// Experts that choose know the whole sequence; without a rule there is nothing to generate by.
inline bool generates(const ExpertVariant& v) {
  return v.experts.choice != Choice::kExpert || v.experts.causal != Causal::kNone;
}

inline std::vector<ExpertVariant> variants_that_generate() {
  std::vector<ExpertVariant> all;
  for (const ExpertVariant& v : kExpertVariants)
    if (generates(v)) all.push_back(v);
  return all;
}

}  // namespace isobath::testing
