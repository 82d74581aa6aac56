// Damages bytes in a repeatable way, for tests that feed parsers what no writer would write.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace isobath::testing {

// One to four changes: a byte flipped, set, inserted or removed, a run repeated, or the end cut off.
inline std::string mutate(std::string bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t n) { return n == 0 ? 0 : size_t(random() % n); };
  for (size_t changes = 1 + below(4); changes > 0; changes--) {
    const size_t at = below(bytes.size() + 1);
    const bool inside = at < bytes.size();
    switch (below(6)) {
      case 0:
        if (inside) bytes[at] = char(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        if (inside) bytes[at] = char(below(256));
        break;
      case 2:
        bytes.insert(at, 1, char(below(256)));
        break;
      case 3:
        if (inside) bytes.erase(at, 1 + below(8));
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, 1 + below(16)));
        break;
      case 5:
        if (below(4) == 0) bytes.resize(at);
        break;
    }
  }
  return bytes;
}

}  // namespace isobath::testing
