// Hugging Face's tokenizer.json (tokenizers 0.13 to 0.21), models of type BPE.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer_state.h"

namespace isobath {

// All but files and hash; bos only where the template names one. Throws Error, or the JSON library's exception where a
// value has another type than expected.
Tokenizer::State read_tokenizer_json(const nlohmann::json& root);

// GPT-2's own files in the form of a tokenizer.json.
nlohmann::json gpt2_tokenizer_json(std::string_view encoder_json, std::string_view vocab_bpe);

}  // namespace isobath
