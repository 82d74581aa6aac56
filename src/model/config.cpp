#include "model/config.h"

#include <algorithm>

#include "base/error.h"

namespace isobath {

void resolve(ModelConfig& c, int64_t T) {
  static constexpr int64_t kMostOfOne = int64_t{1} << 24;  // of any size: what follows multiplies a few of them
  const auto positive = [](const char* key, int64_t value) {
    require(value >= 1 && value <= kMostOfOne, "model.{} is {}, expected 1 to {}", key, value, kMostOfOne);
  };
  positive("hidden_size", c.hidden_size);
  positive("num_hidden_layers", c.num_hidden_layers);
  positive("num_attention_heads", c.num_attention_heads);
  positive("vocab_size", c.vocab_size);
  require(c.num_hidden_layers <= 1 << 16, "model.num_hidden_layers is {}, expected at most 65536", c.num_hidden_layers);
  require(c.head_dim >= 0 && c.head_dim <= kMaxHeadDim, "model.head_dim is {}, expected at most {}", c.head_dim,
          kMaxHeadDim);
  if (c.head_dim == 0) {
    require(c.hidden_size % c.num_attention_heads == 0,
            "num_attention_heads = {} does not divide hidden_size = {}; change one, or set head_dim",
            c.num_attention_heads, c.hidden_size);
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  if (c.num_key_value_heads == 0) c.num_key_value_heads = c.num_attention_heads;
  if (c.intermediate_size == 0) c.intermediate_size = (8 * c.hidden_size / 3 + 15) / 16 * 16;
  if (c.max_position_embeddings == 0) c.max_position_embeddings = T;
  positive("num_key_value_heads", c.num_key_value_heads);
  positive("intermediate_size", c.intermediate_size);
  positive("max_position_embeddings", c.max_position_embeddings);
  require(c.num_attention_heads % c.num_key_value_heads == 0,
          "num_key_value_heads = {} does not divide num_attention_heads = {}", c.num_key_value_heads,
          c.num_attention_heads);
  require(c.head_dim >= 2 && c.head_dim % 2 == 0 && c.head_dim <= kMaxHeadDim,
          "head_dim is {}, expected an even number from 2 to {}", c.head_dim, kMaxHeadDim);
  const double D = double(c.hidden_size), mlps = double(std::max<int64_t>(1, c.experts.experts)),
               weights = double(c.num_hidden_layers) * D * (4 * D + mlps * 3 * double(c.intermediate_size));
  require(weights < 0x1p44, "the blocks would have {:.2g} weights, expected less than {:.2g}", weights, 0x1p44);
  require(T <= c.max_position_embeddings,
          "context = {} is longer than max_position_embeddings = {}; set a context of at most that", T,
          c.max_position_embeddings);
  require(c.rms_norm_eps > 0, "model.rms_norm_eps is {}, expected above 0", c.rms_norm_eps);
  require(c.rope_theta > 0, "model.rope_theta is {}, expected above 0", c.rope_theta);
  check_routing(c);
  ExpertsConfig& e = c.experts;
  if (c.experts_choose() && e.capacity == 0) e.capacity = std::min(1.0, double(e.per_token) / double(e.experts));
  check_experts(c);
}

ModelConfig dense_twin(ModelConfig config) {
  config.routing = RoutingConfig{};
  config.experts = ExpertsConfig{};
  return config;
}

}  // namespace isobath
