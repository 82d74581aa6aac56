<<<<<<< HEAD
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
=======
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
>>>>>>> text
        break;
    }
  }
  return bytes;
}

}  // namespace isobath::testing
