#include "train/toml_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"

namespace isobath {
namespace {

nlohmann::json to_json(const toml::node& node, const std::string& pointer, std::map<std::string, int64_t>& line) {
  line[pointer] = int64_t(node.source().begin.line);
  if (const toml::table* table = node.as_table()) {
    nlohmann::json json = nlohmann::json::object();
    for (const auto& [key, value] : *table)
      json[std::string(key.str())] = to_json(value, pointer + "/" + std::string(key.str()), line);
    return json;
  }
  if (const toml::array* array = node.as_array()) {
    nlohmann::json json = nlohmann::json::array();
    for (const toml::node& item : *array)
      json.push_back(to_json(item, fmt::format("{}/{}", pointer, json.size()), line));
    return json;
  }
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* real = node.as_floating_point()) return real->get();
  if (const auto* flag = node.as_boolean()) return flag->get();
  std::ostringstream text;
  node.visit([&](const auto& value) { text << value; });
  return text.str();
}

}  // namespace

TomlFile::TomlFile(const fs::path& path) : path_(path.string()) {
  const std::string text = read_file(path, kConfigBytes);
  // toml++ bounds how deep values nest, but takes a dotted key of any depth, and recurses.
  constexpr int64_t kMostDots = 4000;
  require(std::count(text.begin(), text.end(), '.') <= kMostDots,
          "{}: over {} dots, so that keys could nest deeper than can be read; expected sections of key = value", path_,
          kMostDots);
  try {
    json_ = to_json(toml::parse(text, path_), "", line_);
  } catch (const toml::parse_error& error) {
    fail("{}:{}: {}", path_, error.source().begin.line, error.description());
  }
}

std::string TomlFile::place(const std::string& pointer) const {
  const auto found = line_.find(pointer);
  return found == line_.end() ? path_ : fmt::format("{}:{}", path_, found->second);
}

}  // namespace isobath
