// What the commands print with: a progress bar with ETA, colours where there is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/units.h"

namespace isobath::cli {

bool output_is_terminal();  // standard output
bool error_is_terminal();   // standard error, where progress goes
bool input_is_terminal();
int terminal_columns();  // of standard error; 120 where it has none

// One line that is written over: bar, text, ETA. On a terminal at most ten times a second; elsewhere a plain line every
// `quiet_seconds`, so that logs stay short. Written to standard error.
class Progress {
 public:
  explicit Progress(std::string what, double quiet_seconds = 15);
  ~Progress();
  // Call often. `already` of `of` was done before this process started, so that the ETA is right after a resume.
  void update(int64_t done, int64_t of, const std::string& text, int64_t already = 0);
  void clear();  // before something else is printed

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  double quiet_seconds_;
  Clock::time_point start_, shown_;
  bool visible_ = false, first_ = true;
};

// Removes a half-written progress line, if any: an error message follows.
void clear_progress();

// SIGINT and SIGTERM ask the run to save and stop; a second SIGINT ends the program at once.
void catch_signals();
bool interrupted();

}  // namespace isobath::cli
