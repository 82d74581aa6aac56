// A Mixture-of-Depths model from a dense one: at the start it computes what that does.
#pragma once

#include <cstdint>
#include <memory>

#include "model/model.h"

namespace isobath {

// The dense model's weights, and routers with weight 0 and bias 1: with the raw gate every routed block adds 1 times
// what it added before, and at capacity 1 to every row; a predictor's last layer has weight 0 and bias 1, so that it
// takes every row too. To the bit where blocks are routed whole, within rounding where halves are. The config says that
// capacity has gone no part of its way from 1 (annealed = 0); train with capacity_anneal. `routing` is taken over with
// a bias. Throws Error for a model that is routed, and for gates and routers that cannot start as the dense model.
std::unique_ptr<Model> upcycle(const Model& dense, RoutingConfig routing, uint64_t seed = 1);

}  // namespace isobath
