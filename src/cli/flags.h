// Flags of the same names as the options in the files: one list, walked once more.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "train/options.h"

namespace isobath::cli {

// A check of counts and seeds: a minus sign would wrap around to a huge number.
inline std::string not_negative(const std::string& word) {
  return word.starts_with('-') ? word + " is negative, expected 0 or more" : "";
}

inline std::string above_0(const std::string& word) {
  return std::strtod(word.c_str(), nullptr) > 0 ? "" : word + ", expected more than 0";
}
// CLI11 takes "nan" for a number; it would be neither in a range nor outside.
inline std::string not_nan(const std::string& word) {
  return std::isnan(std::strtod(word.c_str(), nullptr)) ? word + " is not a number" : "";
}
inline std::string finite(const std::string& word) {
  return std::isfinite(std::strtod(word.c_str(), nullptr)) ? "" : word + " is not finite, expected a number";
}

// Sets the number of threads (0: leaves it) and starts them, as long as it can be told if that fails.
// Throws Error{kInput} where the system gives fewer.
void use_threads(int64_t threads);
// --threads, which takes effect when the command line was read.
void add_threads(CLI::App& command);

// --weights and --kv: the formats that text is generated in. Their words are checked as they are read.
void add_formats(CLI::App& command, std::string& weights, std::string& kv);
WeightFormat weight_format(const std::string& word);

// change() sets options; a budget among them takes the place of the one that there was, of whichever kind that is.
template <class Change>
void replace_budget(TrainOptions& t, Change change) {
  const auto before = std::tuple(std::exchange(t.steps, 0), std::exchange(t.tokens, 0), std::exchange(t.flops, 0));
  change();
  if (t.steps == 0 && t.tokens == 0 && t.flops == 0) std::tie(t.steps, t.tokens, t.flops) = before;
}

// Values that were given as flags, applied after the file was read.
class OptionFlags {
 public:
  // Adds --key-with-dashes for every option of the sections. The help shows `defaults`.
  void add(CLI::App& app, const std::vector<std::string>& sections, RunConfig defaults = {});
  bool any_given() const { return !given_.empty(); }
  void apply(RunConfig& config) const {
    for (const auto& set : given_) set(config);
  }

 private:
  std::vector<std::function<void(RunConfig&)>> given_;
};

// A run's options as they were given: the defaults, what the model of train.from brings, the file (if any), the flags.
RunConfig given_options(const std::string& file, const OptionFlags& flags);

}  // namespace isobath::cli
