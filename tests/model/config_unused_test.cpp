// Settings without an effect are refused where a run is asked for, and read where a file has them.
#include "model/config_unused.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/refusal.h"

namespace isobath {
namespace {

using namespace isobath::testing;
using Change = std::function<void(ModelConfig&)>;

ModelConfig config_of(Topology topology, const Change& change) {
  ModelConfig c;
  c.vocab_size = 257;
  c.routing.topology = topology;
  change(c);
  return c;
}

void token_choice(ModelConfig& c) {
  c.routing.choice = Choice::kToken;
  c.routing.gate = Gate::kSigmoid;
  c.routing.causal = Causal::kNone;
}
void control(ModelConfig& c) {
  c.routing.router = Router::kRandom;
  c.routing.causal = Causal::kNone;
}
void with_experts(ModelConfig& c) { c.experts.experts = 4; }
void expert_choice(ModelConfig& c) {
  c.experts.experts = 4;
  c.experts.choice = Choice::kExpert;
}

struct Unused {
  std::string says, way_out;
  Change change;
};

const std::vector<Unused> kRouting{
    {"routing.every = 3 and routing.blocks", "set every = 2, or leave the list out",
     [](auto& c) {
       c.routing.every = 3;
       c.routing.blocks = {1, 2};
     }},
    {"routing.router_seed = 5 with router = learned", "set router = random",
     [](auto& c) { c.routing.router_seed = 5; }},
    {"routing.balance_weight = 2 with choice = expert", "set choice = token",
     [](auto& c) { c.routing.balance_weight = 2; }},
    {"routing.router_offset", "set causal = bce",
     [](auto& c) {
       c.routing.causal = Causal::kNone;
       c.routing.router_offset = true;
     }},
    {"routing.predictor_width = 8 with causal = bce", "set causal = predictor",
     [](auto& c) { c.routing.predictor_width = 8; }},
    {"routing.aux_weight = 0.1", "(found threshold); set causal = bce",
     [](auto& c) {
       c.routing.causal = Causal::kThreshold;
       c.routing.aux_weight = 0.1;
     }},
    {"routing.predictor_lookback = 1 with causal = bce", "set causal = predictor",
     [](auto& c) { c.routing.predictor_lookback = 1; }},
    {"routing.predictor_lookback = 1 with causal = none", "set router = learned and causal = predictor",
     [](auto& c) {
       control(c);
       c.routing.predictor_lookback = 1;
     }},
    {"routing.predictor_width = 8 with causal = none", "set choice = expert and causal = predictor",
     [](auto& c) {
       token_choice(c);
       c.routing.predictor_width = 8;
     }},
    {"routing.aux_weight = 0.1", "(found none); set router = learned and causal = bce",
     [](auto& c) {
       control(c);
       c.routing.aux_weight = 0.1;
     }},
    {"routing.aux_weight = 0.1", "(found none); set choice = expert and causal = bce",
     [](auto& c) {
       token_choice(c);
       c.routing.aux_weight = 0.1;
     }},
    {"routing.capacity_schedule = cosine", "set capacity_schedule = constant",
     [](auto& c) {
       c.num_hidden_layers = 3;
       c.routing.capacity_schedule = CapacitySchedule::kCosine;
       c.routing.capacity_last = 0.5;
     }},
};

const std::vector<Unused> kExperts{
    {"experts.experts_causal = none", "set experts_choice = expert",
     [](auto& c) {
       with_experts(c);
       c.experts.causal = Causal::kNone;
     }},
    {"experts.experts_aux_weight = 0.2", "set experts_choice = expert",
     [](auto& c) {
       with_experts(c);
       c.experts.aux_weight = 0.2;
     }},
    {"experts.experts_balance_weight = 0.2", "set experts_choice = token",
     [](auto& c) {
       expert_choice(c);
       c.experts.balance_weight = 0.2;
     }},
    {"experts.experts_per_token = 1 and experts.experts_capacity = 0.3", "leave one out",
     [](auto& c) {
       expert_choice(c);
       c.experts.per_token = 1;
       c.experts.capacity = 0.3;
     }},
    {"experts.experts_per_token = 5 of 4 experts", "set experts_per_token = 4, or less",
     [](auto& c) {
       expert_choice(c);
       c.experts.per_token = 5;
     }},
    {"experts.experts_aux_weight = 0.2", "set experts_causal = bce",
     [](auto& c) {
       expert_choice(c);
       c.experts.causal = Causal::kNone;
       c.experts.aux_weight = 0.2;
     }},
    {"experts.experts_offset", "set experts_choice = expert",
     [](auto& c) {
       with_experts(c);
       c.experts.offset = true;
     }},
    {"experts.experts_offset", "set experts_causal = bce",
     [](auto& c) {
       expert_choice(c);
       c.experts.causal = Causal::kNone;
       c.experts.offset = true;
     }},
};

void expect_refused(const Unused& row, Topology topology) {
  ModelConfig c = config_of(topology, row.change);
  const std::string message = refusal([&] { check_unused(c); });
  EXPECT_NE(message.find(row.says), std::string::npos) << row.says << ": " << message;
  EXPECT_NE(message.find(row.way_out), std::string::npos) << row.way_out << ": " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  resolve(c, 32);
  config_from_json(to_json(c), "config.json");  // a folder that has it is read
}

TEST(Unused, IsRefusedByKey) {
  for (const Unused& row : kRouting) expect_refused(row, Topology::kJoint);
  for (const Unused& row : kExperts)
    for (const Topology topology : {Topology::kDense, Topology::kStaggered}) expect_refused(row, topology);
}

TEST(Unused, OfDenseModelsIsWhatTheRoutedVariantMeans) {
  for (const Unused& row : kRouting) check_unused(config_of(Topology::kDense, row.change));
}

TEST(Unused, DoesNotRefuseWhatHasAnEffect) {
  const std::vector<Change> good{
      [](auto&) {},
      [](auto& c) {
        c.routing.blocks = {1, 2};
      },
      [](auto& c) { c.routing.aux_weight = 0.1; },
      [](auto& c) {
        c.routing.causal = Causal::kPredictor;
        c.routing.predictor_width = 8;
        c.routing.router_offset = true;
      },
      [](auto& c) {
        c.routing.router = Router::kRandom;
        c.routing.causal = Causal::kNone;
        c.routing.router_seed = 5;
        c.routing.router_offset = true;
      },
      [](auto& c) {
        token_choice(c);
        c.routing.balance_weight = 2;
        c.routing.router_offset = true;
      },
      [](auto& c) {
        with_experts(c);
        c.experts.per_token = 1;
        c.experts.balance_weight = 2;
      },
      [](auto& c) {
        expert_choice(c);
        c.experts.per_token = 1;
        c.experts.aux_weight = 2;
        c.experts.offset = true;
      },
      [](auto& c) {
        expert_choice(c);
        c.experts.causal = Causal::kNone;
        c.experts.capacity = 0.3;
      },
      [](auto& c) {
        expert_choice(c);
        c.experts.per_token = 4;
      },
      [](auto& c) {
        c.routing.causal = Causal::kPredictor;
        c.routing.predictor_lookback = 1;
      },
      [](auto& c) {
        c.routing.capacity_schedule = CapacitySchedule::kCosine;
        c.routing.capacity_last = 0.5;
      },
  };
  for (const Change& change : good) {
    ModelConfig c = config_of(Topology::kJoint, change);
    check_unused(c);
    resolve(c, 32);
    check_unused(c);  // what resolve fills in is no setting
  }
}

}  // namespace
}  // namespace isobath
