#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/adamw.h"

namespace isobath {

Optimizer::Optimizer(const ModelConfig& config, const OptimizerOptions& options)
    : first(config), second(config), options_(options) {
  int64_t largest = 1;
  for (const WeightInfo& info : first.list()) largest = std::max(largest, info.shape.numel());
  partial_.resize(size_t((largest + kSumChunk - 1) / kSumChunk));
}

GradientNorms Optimizer::step(WeightSet& weights, WeightSet& gradient, double learning_rate, int64_t step) {
  const std::vector<WeightInfo>& list = weights.list();
  double squares[2] = {0, 0};  // model, predictor
  for (size_t i = 0; i < list.size(); i++) {
    if (!is_trained(list[i].kind)) continue;
    const double sum = sum_of_squares(gradient.at(i), {partial_.data(), {int64_t(partial_.size())}});
    if (!std::isfinite(sum)) fail_work("the gradient of {} is not finite", list[i].name);
    squares[is_predictor(list[i].kind)] += sum;
  }
  const GradientNorms norms{std::sqrt(squares[0]), std::sqrt(squares[1])};
  const auto clip = [&](double norm) {
    return float(options_.clip > 0 && norm > options_.clip ? options_.clip / norm : 1.0);
  };
  const float scale[2] = {clip(norms.model), clip(norms.predictor)};
  for (size_t i = 0; i < list.size(); i++) {
    if (!is_trained(list[i].kind)) continue;
    const AdamW option{.lr = float(learning_rate),
                       .beta1 = float(options_.beta1),
                       .beta2 = float(options_.beta2),
                       .weight_decay = decays(list[i].kind) ? float(options_.weight_decay) : 0.0f};
    adamw_step(weights.at(i), first.at(i), second.at(i), gradient.at(i), option, scale[is_predictor(list[i].kind)],
               step);
  }
  return norms;
}

}  // namespace isobath
