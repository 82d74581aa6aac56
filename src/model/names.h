// Weights from named tensors, whoever stores them. The names are the list's own (Hugging Face Llama and ours).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/weights.h"

namespace isobath {

// Named tensors, wherever they are: a folder of safetensors (checkpoint/safetensors.h), a test.
struct TensorSource {
  std::vector<std::string> names;
  std::function<void(const std::string& name, F32 into)> read;  // throws Error on another shape or type
  std::string where;                                            // for messages
  // Of a set whose matrices stay in their file: throws Error unless the matrix is there, of this shape and readable.
  std::function<void(const std::string& name, Shape shape)> look = {};
  // Where an embedding may be used where it lies; null, or left out: it is read.
  std::function<const float*(const std::string& name, Shape shape)> lend = {};
};

// The name of the first weight that holds NaN or infinity, empty where none does. The number of a
// rule (a threshold, an offset) may be infinite.
std::string weight_not_finite(const WeightSet& set);

// Fills every weight of the list. Throws Error{kWork} naming one that is not finite, and Error{kInput} naming the
// tensors that are missing, and those that are there but not in the list (a routed checkpoint read as a dense model),
// except ones that carry no weight of their own: rotary inv_freq tables, and lm_head where it is tied.
void read_weights(WeightSet& set, const TensorSource& source);

// Copies the weights that both have, by name; the others of `to` keep their values. Throws Error naming a weight of
// another shape, and those that only `from` has.
void copy_weights(WeightSet& to, const WeightSet& from);

}  // namespace isobath
