#include "base/memory.h"

#include <fstream>
#include <string>

namespace isobath {

std::optional<int64_t> anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return std::nullopt;
}

}  // namespace isobath
