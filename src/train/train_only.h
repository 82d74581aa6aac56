// Which weights a run trains (train.train_only): the others keep their bits.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/weights.h"

namespace isobath {

// One entry per weight of the list: whether it is trained. `patterns` is a list with commas: a pattern with * or ? has
// to match the whole name, any other to be a part of it; the word router also means the routers of experts, whose name
// (block_sparse_moe.gate.weight) lacks it; an empty list means every weight. Weights that are measured, not trained,
// move with the run if they match. Throws Error naming a pattern that no weight matches,
// or nothing but offsets, which no run moves.
std::vector<uint8_t> trained_weights(const std::vector<WeightInfo>& list, std::string_view patterns);

// Parameters that gradients move, without allocating the weights.
int64_t count_trained(const ModelConfig& config, std::string_view patterns);

}  // namespace isobath
