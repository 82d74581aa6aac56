// The 16-bit floating point formats, bit by bit. Widening is exact; narrowing rounds to nearest, ties to even.
// BF16 is the upper half of a float32. F16 is IEEE 754 binary16.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace isobath {

inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }

inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  return uint16_t(nan ? (bits >> 16) | 0x40u : rounded);  // rounding could carry a NaN over into infinity
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  const uint32_t subnormal = std::bit_cast<uint32_t>(float(magnitude) * 0x1p-24f);
  const uint32_t normal = (magnitude << 13) + (112u << 23);  // exponent bias 15 -> 127
  const uint32_t special = (magnitude << 13) | 0x7f800000u;  // infinity, NaN
  return std::bit_cast<float>(sign | (magnitude < 0x0400u ? subnormal : magnitude < 0x7c00u ? normal : special));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t h;
  if (magnitude > 0x7f800000u) {
    h = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above are nearer to 2^16 than to 65504
    h = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: the last place of 0.5f is 2^-24, F16's smallest step
    h = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    h = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
  }
  return uint16_t(sign | h);
}

// `count` values of such a format that lie anywhere, aligned or not: widen<f16_to_f32>(to, from, count).
template <float (*kWiden)(uint16_t)>
void widen(float* to, const std::byte* from, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    uint16_t half;
    std::memcpy(&half, from + 2 * i, sizeof half);
    to[i] = kWiden(half);
  }
}

}  // namespace isobath
