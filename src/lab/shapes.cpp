#include "lab/shapes.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "model/flops.h"
#include "model/weights.h"

namespace isobath {
namespace {

constexpr int64_t kMostBlocks = 256;

double away(double value, double from) { return std::abs(std::log(value / from)); }

}  // namespace

ModelConfig shape_of_parameters(const ModelConfig& like, double parameters) {
  const int64_t head = like.head_dim > 0 ? like.head_dim : like.hidden_size / like.num_attention_heads;
  const double proportion = double(like.hidden_size) / double(like.num_hidden_layers);
  ModelConfig best = like;
  double best_count = std::numeric_limits<double>::infinity(), best_form = best_count;
  const auto try_shape = [&](int64_t heads, int64_t blocks) {
    ModelConfig shape = like;
    shape.hidden_size = heads * head;
    shape.num_attention_heads = heads;
    shape.num_key_value_heads = 0;
    shape.num_hidden_layers = blocks;
    shape.intermediate_size = 0;
    ModelConfig full = dense_twin(shape);
    resolve(full, 1);
    const double form = away(double(shape.hidden_size) / double(blocks), proportion);
    double count = away(double(count_weights(full)), parameters);
    if (count <= 0.03) count = 0;  // near enough: proportion decides
    if (count < best_count || (count == best_count && form < best_form)) {
      best = shape;
      best_count = count;
      best_form = form;
    }
    return double(count_weights(full));
  };
  bool small = true;  // whether any depth of the last width was small enough: counts grow with the width
  for (int64_t heads = 1; small && heads * head <= (1 << 15); heads++) {
    small = double(heads * head) < proportion / 2;  // too narrow for any depth
    for (int64_t blocks = 1; blocks <= kMostBlocks; blocks++) {
      const double form = double(heads * head) / double(blocks);
      if (away(form, proportion) > std::log(2.0)) continue;
      if (try_shape(heads, blocks) > 2 * parameters) break;
      small = true;
    }
  }
  require(
      best_count <= 0.15,
      "no model of head size {} and width / depth near {:.3g} has about {:.3g} parameters; use another head size or "
      "base shape",
      head, proportion, parameters);
  return best;
}

ModelConfig depth_of_flops(ModelConfig config, int64_t T, double flops) {
  require(config.routing.blocks.empty() && config.routing.capacity.size() == 1,
          "a depth that follows from FLOPs needs blocks by `every` and one capacity, not lists of blocks");
  double best = std::numeric_limits<double>::infinity();
  int64_t depth = 0;
  for (int64_t blocks = 1; blocks <= kMostBlocks; blocks++) {
    config.num_hidden_layers = blocks;
    if (config.routing.topology != Topology::kDense && config.routed_blocks() == 0) continue;
    ModelConfig full = config;
    resolve(full, T);
    const double here = double(model_flops(full, 1, T).forward());
    if (away(here, flops) < best) {
      best = away(here, flops);
      depth = blocks;
    }
    if (here > 2 * flops) break;
  }
  require(best <= std::log(1.5), "no depth of width {} comes near {:.3g} FLOPs per forward pass", config.hidden_size,
          flops);
  config.num_hidden_layers = depth;
  return config;
}

}  // namespace isobath
