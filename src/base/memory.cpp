#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace isobath {

std::optional<int64_t> anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  return std::nullopt;
}

void give_back(void* at, int64_t bytes) {
  const uintptr_t page = uintptr_t(::sysconf(_SC_PAGESIZE)), from = uintptr_t(at);
  const uintptr_t first = (from + page - 1) / page * page, end = (from + uintptr_t(bytes)) / page * page;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

}  // namespace isobath
