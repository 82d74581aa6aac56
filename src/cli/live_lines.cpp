#include "cli/live_lines.h"

#include <cstdio>

#include "cli/terminal.h"

namespace isobath::cli {

void LiveLines::show(const std::vector<std::string>& lines) {
  const auto now = std::chrono::steady_clock::now();
  if (!error_is_terminal() || (shown_ > 0 && now - last_ < std::chrono::milliseconds(250))) return;
  last_ = now;
  clear();
  const size_t columns = size_t(terminal_columns() - 1);
  for (const std::string& line : lines) std::fprintf(stderr, "%s\n", line.substr(0, columns).c_str());
  std::fflush(stderr);
  shown_ = lines.size();
}

void LiveLines::clear() {
  for (; shown_ > 0; shown_--) std::fprintf(stderr, "\033[A\r\033[K");
}

}  // namespace isobath::cli
