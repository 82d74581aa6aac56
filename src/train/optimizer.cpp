#include "train/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/adamw.h"

namespace isobath {

Optimizer::Optimizer(const ModelConfig& config, const OptimizerOptions& options, std::vector<uint8_t> trained)
    : first(config), second(config), options_(options), trained_(std::move(trained)) {
  const std::vector<WeightInfo>& list = first.list();
  if (trained_.empty()) trained_.assign(list.size(), 1);
  require(trained_.size() == list.size(), "optimizer: {} marks for {} weights", trained_.size(), list.size());
  for (size_t i = 0; i < list.size(); i++) trained_[i] = trained_[i] && is_trained(list[i].kind);
  int64_t largest = 1;
  for (const WeightInfo& info : first.list()) largest = std::max(largest, info.shape.numel());
  partial_.resize(size_t((largest + kSumChunk - 1) / kSumChunk));
}

GradientNorms Optimizer::step(WeightSet& weights, WeightSet& gradient, double learning_rate, int64_t step) {
  const std::vector<WeightInfo>& list = weights.list();
  double squares[2] = {0, 0};  // model, predictor
  for (size_t i = 0; i < list.size(); i++) {
    if (!trained_[i]) continue;
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
    if (!trained_[i]) {
      std::fill_n(gradient.at(i).data, gradient.at(i).numel(), 0.0f);
      continue;
    }
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
