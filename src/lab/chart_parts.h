// What all charts are made with.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "lab/trace.h"

namespace isobath {

// A specification with its rows: {name of the data set, values}.
nlohmann::json with_data(const char* spec, std::initializer_list<std::pair<const char*, nlohmann::json>> sets);
void set_signal(nlohmann::json& spec, const char* name, const nlohmann::json& value);

// The text above each of the first `count` tokens: of a character of several tokens, the character above each.
std::vector<std::string> token_labels(const Trace& trace, const Tokenizer& tokenizer, int64_t count);

}  // namespace isobath
