// What the commands print with: a progress bar with ETA, colours where there is a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

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

// "warning: TEXT", a line on standard error.
void warn(const std::string& text);

// A terminal would take control characters, which a text or a model of bytes may hold, for commands. C0 without newline
// and tab, DEL, and C1 (U+0080 to U+009F: U+009B is as good as ESC [) become '?'. UTF-8 in whole characters.
std::string without_controls(std::string_view text);

// From the start of the program: SIGINT, SIGTERM and SIGHUP end it with the exit code 128 + signal, and a mapped file
// that another program shortens (SIGBUS) ends it with a line of error and exit code 1.
void prepare_signals();
// From here on there is something to save: SIGINT and SIGTERM ask the run to save and stop; a second SIGINT ends the
// program at once.
void catch_signals();
bool interrupted();

}  // namespace isobath::cli
