// What routers learn beside the language model's loss.
#include <algorithm>

#include "base/parallel.h"
#include "model/selection.h"
#include "ops/bce.h"
#include "ops/predictor.h"
#include "ops/router.h"

namespace isobath {

void auxiliary_loss(const RouterContext& c, RouterWeights& gradient, RouterActs& r, CF32 x, double scale) {
  const int64_t N = x.rows();
  const F32 dscore = r.dscore.slice(0, N);
  std::fill_n(dscore.data, N, 0.0f);
  if (c.config.routing.router != Router::kLearned) return;
  Agreement same;
  if (c.config.routing.causal == Causal::kBce) {
    const CF32 score = r.score.slice(0, N);
    r.auxiliary_sum =
        bce_with_logits(add_to(dscore), same, score, r.list.index, float(scale * c.config.routing.aux_weight));
    const F32 partial = c.scratch.partial.reshaped({kGradChunks, x.cols()});
    router_backward_weight(add_to(gradient.w), add_to(gradient.bias), dscore, x, {}, partial);
  } else if (c.config.routing.causal == Causal::kPredictor) {
    const F32 logit = c.scratch.predicted.slice(0, N), dlogit = c.scratch.dpredicted.slice(0, N);
    const F32 hidden = c.scratch.hidden.slice(0, N);
    const int64_t P = hidden.cols();
    std::fill_n(dlogit.data, N, 0.0f);
    r.auxiliary_sum = bce_with_logits(add_to(dlogit), same, logit, r.list.index, float(scale));
    predictor_backward(hidden, add_to(gradient.fc1_bias), add_to(gradient.fc2.reshaped({P})), add_to(gradient.fc2_bias),
                       dlogit, c.weights.fc2.reshaped({P}), c.scratch.partial.reshaped({kGradChunks, 2 * P + 1}));
    c.fc1.backward_weight(add_to(gradient.fc1), hidden, x);
  }
}

}  // namespace isobath
