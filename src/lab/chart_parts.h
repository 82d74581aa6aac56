// What all charts are made with.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

namespace isobath {

// A specification with its rows: {name of the data set, values}.
nlohmann::json with_data(const char* spec, std::initializer_list<std::pair<const char*, nlohmann::json>> sets);
void set_signal(nlohmann::json& spec, const char* name, const nlohmann::json& value);

}  // namespace isobath
