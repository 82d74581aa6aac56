// A model ready to run: config, weights and packed products. What evaluation and generation share.
#pragma once

#include <memory>

#include "model/config.h"
#include "model/weights.h"

namespace isobath {

class Model {
 public:
  explicit Model(const ModelConfig& config) : weights(config) {}

  // Plans the products for lists of up to `rows` rows, and packs. Call again after weights changed, or to ask for more:
  // what an earlier call asked for stays.
  void prepare(int64_t rows, bool backward = false, std::vector<int64_t> exact = {}, Packing packing = Packing::kStep);

  const ModelConfig& config() const { return weights.config(); }
  const Products::Sizes& planned() const { return planned_; }  // what `products` were planned for
  WeightSet weights;
  std::unique_ptr<Products> products;

 private:
  Products::Sizes planned_{};
};

}  // namespace isobath
