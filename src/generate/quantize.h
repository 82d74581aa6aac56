// A model folder whose matrices are stored as engines multiply them, so that nothing is rounded when it is loaded. The
// form of the file is described in docs/design.md, Files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace isobath {

struct QuantizedMatrix {
  std::string name;
  int64_t section;        // that it belongs to; -1: the head
  double relative_error;  // |W - Q| / |W|, of the roots of the sums of squares
};

// Bytes of the tensors that save_quantized writes.
int64_t quantized_bytes(const WeightSet& set, WeightFormat format);

// Writes config.json, model.safetensors and the tokenizer's files into a folder that is there. Engines and evaluation
// of what is written have the bits that EngineOptions::weights = format gives for `model`. Returns every matrix with
// its error. Holds one matrix beside the model, and all scales. progress(weights done, of all), if given, is called
// between matrices. Throws Error for a model that is quantized already, for fp32, and as FileWriter does.
std::vector<QuantizedMatrix> save_quantized(const fs::path& folder, const Model& model, const Tokenizer& tokenizer,
                                            WeightFormat format,
                                            const std::function<void(int64_t done, int64_t of)>& progress = {});

}  // namespace isobath
