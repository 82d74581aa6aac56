// Flags of the same names as the options in the files: one list, walked once more.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "train/options.h"

namespace isobath::cli {

// A check of counts and seeds: a minus sign would wrap around to a huge number.
inline std::string not_negative(const std::string& word) {
  return word.starts_with('-') ? word + " is negative, expected 0 or more" : "";
}

// --threads, which takes effect as it is read.
void add_threads(CLI::App& command);

// Values that were given as flags, applied after the file was read.
class OptionFlags {
 public:
  // Adds `--key` (and --key-with-dashes) for every option of the sections.
  void add(CLI::App& app, const std::vector<std::string>& sections);
  void apply(RunConfig& config) const {
    for (const auto& set : given_) set(config);
  }

 private:
  std::vector<std::function<void(RunConfig&)>> given_;
};

}  // namespace isobath::cli
