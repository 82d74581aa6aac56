// Some lines at the bottom of a terminal that are written over. Nothing where standard error is no terminal.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace isobath::cli {

class LiveLines {
 public:
  ~LiveLines() { clear(); }
  void show(const std::vector<std::string>& lines);  // at most some times a second
  void clear();                                      // before something else is printed
 private:
  size_t shown_ = 0;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace isobath::cli
