// JSON from files that nobody vouches for.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace isobath {

// One JSON value and nothing but whitespace around it. Throws Error "WHAT ..." for text that is not UTF-8 JSON, starts
// with a byte order mark, holds a NUL byte, repeats a key within an object (also after unescaping), or nests deeper
// than 128. Cost: linear in the text but for sorting the keys; no recursion.
nlohmann::json strict_json(std::string_view text, const std::string& what);

// A name from a file for an error message: quoted, on one line, cut when long.
std::string in_quotes(std::string_view name);

}  // namespace isobath
