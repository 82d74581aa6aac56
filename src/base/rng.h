// Counter-based random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
//
// There is no state to save: the number at (key, counter) is a pure function of both, so resume, threads and order of
// evaluation cannot change it.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace isobath {

// What a stream of numbers is for: part of the key, so that streams never overlap.
enum class Stream : uint32_t { kInit = 1, kData = 2, kRouter = 3, kSample = 4, kBench = 5 };

class Rng {
 public:
  Rng(uint64_t seed, Stream stream, uint32_t sub = 0)
      : key_{uint32_t(seed) ^ (uint32_t(stream) * 0x9E3779B9u), uint32_t(seed >> 32) ^ (sub * 0x85EBCA6Bu)} {}

  // Four independent 32-bit words.
  std::array<uint32_t, 4> words(uint64_t hi, uint64_t lo) const {
    std::array<uint32_t, 4> c{uint32_t(lo), uint32_t(lo >> 32), uint32_t(hi), uint32_t(hi >> 32)};
    uint32_t k0 = key_[0], k1 = key_[1];
    for (int round = 0; round < 10; round++) {
      const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
      c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return c;
  }

  // In [0, 1), 53 bits.
  double uniform(uint64_t hi, uint64_t lo = 0) const {
    const auto w = words(hi, lo);
    return double((uint64_t(w[0]) << 21) ^ (w[1] >> 11)) * 0x1p-53;
  }

  // In [0, n), without modulo bias worth naming (n < 2^53).
  int64_t below(int64_t n, uint64_t hi, uint64_t lo = 0) const { return int64_t(uniform(hi, lo) * double(n)); }

  // N(0, 1), Box-Muller in float64.
  float normal(uint64_t hi, uint64_t lo = 0) const {
    const auto w = words(hi, lo);
    const double u = (double(w[0]) + 0.5) * 0x1p-32, v = double(w[1]) * 0x1p-32;
    return float(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }

 private:
  std::array<uint32_t, 2> key_;
};

}  // namespace isobath
