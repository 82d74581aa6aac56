// A TOML file as JSON values that know where they stand.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/file.h"

namespace isobath {

class TomlFile {
 public:
  // Throws Error naming file and line of what is not TOML. Dates and times become text.
  explicit TomlFile(const fs::path& path);

  const nlohmann::json& json() const { return json_; }
  // "study.toml:12" of the value at a JSON pointer, "/model/hidden_size"; of the file where nothing stands there.
  std::string place(const std::string& pointer) const;

 private:
  std::string path_;
  nlohmann::json json_;
  std::map<std::string, int64_t> line_;
};

}  // namespace isobath
