#include "train/upcycle.h"

#include <algorithm>

#include "base/error.h"
#include "model/names.h"

namespace isobath {

std::unique_ptr<Model> upcycle(const Model& dense, RoutingConfig routing, uint64_t seed) {
  require(dense.config().routed_blocks() == 0, "upcycle: the model is routed already; expected a dense one");
  require(routing.topology != Topology::kDense, "upcycle: topology = dense routes nothing; set topology = joint");
  require(
      routing.choice == Choice::kExpert,
      "upcycle: choice = token multiplies by a probability, so that no block adds what it added in the dense model; "
      "set choice = expert");
  require(routing.gate == Gate::kRaw,
          "upcycle: gate = {} does not let a block add what it added in the dense model; set gate = raw",
          name_of(routing.gate));
  require(routing.router == Router::kLearned,
          "upcycle: router = {} has no weights that could start as the dense model; set router = learned",
          name_of(routing.router));
  routing.router_bias = true;
  routing.annealed = 0;
  ModelConfig config = dense.config();
  config.routing = routing;
  resolve(config, 1);
  auto model = std::make_unique<Model>(config);
  initialize(model->weights, seed);
  copy_weights(model->weights, dense.weights);
  for (SectionWeights& block : model->weights.weights().section) {
    RouterWeights& router = block.router;
    if (router.w.empty()) continue;
    std::fill_n(router.w.data, router.w.numel(), 0.0f);
    router.bias[0] = 1;
    if (router.fc2.empty()) continue;  // a predictor says yes to every row, as the other rules do of a score of 1
    std::fill_n(router.fc2.data, router.fc2.numel(), 0.0f);
    router.fc2_bias[0] = 1;
  }
  return model;
}

}  // namespace isobath
