// Shapes of models by rules: a number of parameters, or as many FLOPs per forward pass as another model.
#pragma once

#include "model/config.h"

namespace isobath {

// The dense model of about so many parameters that is nearest in proportion (width over depth) to `like`: width a
// multiple of the head size of `like`, which it keeps. Of the shapes within 3% of the number the best proportioned,
// else the nearest one. The rest (vocabulary, which must be set, tied embeddings, routing) is as in `like`.
// Throws Error for a number that no shape comes near (15%).
ModelConfig shape_of_parameters(const ModelConfig& like, double parameters);

// The same model at the depth whose FLOPs per forward pass of T tokens are nearest to `flops`. Throws Error where even
// that is more than half away, and for lists of blocks or capacities, which name a depth of their own.
ModelConfig depth_of_flops(ModelConfig config, int64_t T, double flops);

}  // namespace isobath
