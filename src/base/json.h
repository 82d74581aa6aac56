// JSON from files that nobody vouches for: the one place where it is parsed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace isobath {

// What is done where programs differ: kStrict refuses a byte order mark, and a key that an object repeats (also after
// unescaping); kLenient skips the mark and takes the last value, as most programs do.
enum class JsonForm { kStrict, kLenient };

// One JSON value and nothing but whitespace around it. Throws Error "WHAT ..." for text that is not UTF-8 JSON, holds a
// NUL byte, or nests deeper than 128: what follows (copies, comparisons, dump) recurses, and so does our own code.
// Cost: linear in the text but for sorting the keys; no recursion.
nlohmann::json parse_json(std::string_view text, const std::string& what, JsonForm form = JsonForm::kLenient);

// A name from a file for an error message: quoted, on one line, cut when long.
std::string in_quotes(std::string_view name);

}  // namespace isobath
