// A model ready to run: config, weights and packed products. What evaluation and generation share.
#pragma once

#include <memory>

#include "model/config.h"
#include "model/weights.h"

namespace isobath {

class Model {
 public:
  // With `file` the matrices stay there: what runs packs them from it, forward only.
  explicit Model(const ModelConfig& config, FileMatrices file = {})
      : weights(config, Allocate::kYes, file.find ? Matrices::kInFile : Matrices::kHere), file_(std::move(file)) {}

  // Packs products of this model's sizes, wherever the matrices are.
  void pack(Products& products) const;
  bool in_file() const { return file_.find != nullptr; }
  void forget_file() { file_.find = {}; }  // nothing can be packed any more

  // Plans the products for lists of up to `rows` rows, and packs. Call again after weights changed, or to ask for more:
  // what an earlier call asked for stays. Quantized models run in their own format. Throws Error for the backward pass
  // of a model whose matrices are in a file, and for any of one that is not quantized.
  void prepare(int64_t rows, bool backward = false, std::vector<int64_t> exact = {}, Packing packing = Packing::kStep);

  const ModelConfig& config() const { return weights.config(); }
  const Products::Sizes& planned() const { return planned_; }  // what `products` were planned for
  WeightSet weights;
  std::unique_ptr<Products> products;

 private:
  Products::Sizes planned_{};
  FileMatrices file_;
};

}  // namespace isobath
