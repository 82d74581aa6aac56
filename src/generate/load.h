// A model folder: config.json, the weights in safetensors, and the tokenizer. Ours and dense Hugging Face Llama folders
// are read alike.
//
//   LoadedModel loaded = load_model("runs/prose");   // a run, a checkpoint of it, or a folder of another program
#pragma once

#include <memory>

#include "base/file.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace isobath {

struct LoadedModel {
  fs::path folder;
  Tokenizer tokenizer;
  std::unique_ptr<Model> model;
};

// The tokenizer is the folder's tokenizer.json; without one it is "bytes" if config.json says `"tokenizer": "bytes"` or
// has a vocabulary of 257. Throws Error naming file and key for what is missing, damaged or does not belong together.
// Matrices of a quantized folder stay in their mapped file: such a model is evaluated and generated from, not trained.
LoadedModel load_model(const fs::path& path);

// For engines: any model's matrices stay in their mapped file, and an engine packs them from there. No copy in fp32 is
// made, and nothing else can be done with the model. An fp32 embedding is used where it lies, in the file.
LoadedModel load_for_generation(const fs::path& path);

// For a model that only engines use which are there already: gives back the memory, or the mapped file, of the matrices
// that they packed.
// Embedding, norms and routers stay; nothing else can be done with the model any more.
void forget_packed_weights(Model& model);

}  // namespace isobath
