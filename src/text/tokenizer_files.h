// The files of a tokenizer in a folder, and what they say about its start and end tokens.
#pragma once

#include "text/tokenizer_state.h"

namespace isobath {

// A tokenizer.json, or a folder that holds one (or encoder.json and vocab.bpe), with the files beside it that name bos
// and eos. Throws Error naming the file.
Tokenizer::State read_tokenizer_files(const fs::path& path);
// From the bytes of a tokenizer.json alone.
Tokenizer::State read_tokenizer_bytes(std::string_view tokenizer_json);

}  // namespace isobath
