// A run that starts from the weights of a model folder (train.from), with a new optimizer state.
#pragma once

#include "base/file.h"
#include "train/options.h"

namespace isobath {

// The folder's [model] and [routing], and its tokenizer where it has files of one, become those of `config`. What is
// given besides is to be set afterwards.
void take_architecture(RunConfig& config, const fs::path& model);

// Vocabulary and special tokens, which no option names, and a check that [model] is still the folder's: Throws Error
// naming the key that is not.
void take_vocabulary(ModelConfig& config, const fs::path& model, int64_t tokenizer_size);

// The folder's weights; those it lacks, such as routers of a dense model, keep their values. Throws Error naming a
// weight that the model has no place for.
void read_start(WeightSet& weights, const fs::path& model);

}  // namespace isobath
