// Damage to valid input, for tests that expect an Error and never a crash.
#pragma once

#include <cstdint>
#include <string>

#include "base/rng.h"

namespace isobath::testing {

// The bytes with one to four changes, each a flipped bit, a cut end, a new byte, a removed or a repeated run.
inline std::string mutate(std::string bytes, uint64_t seed) {
  const Rng rng(seed, Stream::kBench);
  const auto below = [&](size_t n, uint64_t draw) { return size_t(rng.below(int64_t(n), draw)); };
  const uint64_t changes = 1 + below(4, 0);
  for (uint64_t i = 1; i <= changes && !bytes.empty(); i++) {
    const size_t at = below(bytes.size(), 4 * i), run = 1 + below(16, 4 * i + 1);
    switch (below(5, 4 * i + 2)) {
      case 0:
        bytes[at] = char(uint8_t(bytes[at]) ^ (1u << below(8, 4 * i + 3)));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.insert(at, 1, char(uint8_t(below(256, 4 * i + 3))));
        break;
      case 3:
        bytes.erase(at, run);
        break;
      default:
        bytes.insert(at, bytes.substr(at, run));
        break;
    }
  }
  return bytes;
}

}  // namespace isobath::testing
