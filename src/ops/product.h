// The product y = x W^T of a layer's weights, by one of two kinds: Linear while the weights are trained (ops/linear.h),
// FrozenLinear once they no longer change (ops/frozen_linear.h). Layers cannot tell which.
#pragma once

#include <string>
#include <variant>

#include "ops/frozen_linear.h"
#include "ops/linear.h"

namespace isobath {

class Product {
 public:
  void plan(Plan& plan, const std::string& name, const Linear::Sizes& sizes) {
    kind_.emplace<Linear>().plan(plan, name, sizes);
  }
  void plan(Plan& plan, const std::string& name, const FrozenLinear::Sizes& sizes) {
    kind_.emplace<FrozenLinear>().plan(plan, name, sizes);
  }
  void pack(CF32 W) {
    std::visit([&](auto& product) { product.pack(W); }, kind_);
  }
  // Of weights that no longer change, from where they lie (FrozenLinear::pack).
  bool pack(std::span<const RawMatrix> parts) { return std::get<FrozenLinear>(kind_).pack(parts); }
  void forward(F32 y, CF32 x) const {
    std::visit([&](const auto& product) { product.forward(y, x); }, kind_);
  }
  // Of trained weights only.
  void backward_input(F32 dx, CF32 dy) const { std::get<Linear>(kind_).backward_input(dx, dy); }
  void backward_weight(Accum dW, CF32 dy, CF32 x) const { std::get<Linear>(kind_).backward_weight(dW, dy, x); }

 private:
  std::variant<Linear, FrozenLinear> kind_;
};

}  // namespace isobath
