// Packing of FrozenLinear's weights.
#include "ops/frozen_weights.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/parallel.h"
#include "ops/rows.h"

namespace isobath {
namespace frozen {

namespace {

constexpr uint16_t kBf16NaN = 0x7FC0;

uint16_t to_bf16(float value) {
  if (std::isnan(value)) return kBf16NaN;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}
uint16_t to_bf16_above(float value) { return uint16_t((std::bit_cast<uint32_t>(value) + 0xFFFF) >> 16); }
float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

// Where column i of 64 stands among 64 values in pairs.
int64_t paired(int64_t i) { return i < kPanel / 2 ? 2 * i : 2 * (i - kPanel / 2) + 1; }

// Codes of up to 32 weights; returns the scale's bits. Filling up with zeros changes neither.
uint16_t quantize_group(int8_t* code, const float* w, int64_t count) {
  float most = 0;
  bool finite = true;
  for (int64_t k = 0; k < count; k++) {
    finite &= std::isfinite(w[k]);
    most = std::max(most, std::abs(w[k]));
  }
  if (!finite || most < kSmallest) {
    std::fill_n(code, count, int8_t(0));
    return finite ? 0 : kBf16NaN;
  }
  const uint16_t scale = to_bf16_above(most / 127);
  for (int64_t k = 0; k < count; k++) code[k] = int8_t(std::nearbyint(w[k] / from_bf16(scale)));
  return scale;
}

void pack_f32_panel(std::byte* to, const float* W, int64_t columns, int64_t K) {
  float* values = reinterpret_cast<float*>(to);
  for (int64_t k = 0; k < K; k++, values += kPanel)
    for (int64_t i = 0; i < kPanel; i++) values[i] = i < columns ? W[i * K + k] : 0;
}

void pack_bf16_panel(std::byte* to, const float* W, int64_t columns, int64_t K) {
  uint16_t* values = reinterpret_cast<uint16_t*>(to);
  for (int64_t k = 0; k < K; k++, values += kPanel)
    for (int64_t i = 0; i < kPanel; i++) values[paired(i)] = i < columns ? to_bf16(W[i * K + k]) : 0;
}

// group(n, g, codes of 32) returns the scale's bits.
template <class Group>
void pack_int8_panels(std::byte* to, const Weights& weights, Group group) {
  parallel_for(weights.panels(), 1, [&](int64_t panel) {
    for (int64_t g = 0; g < weights.steps(); g++) {
      std::byte* at = to + panel * weights.panel_bytes() + g * kGroupBytes;
      uint16_t* scales = reinterpret_cast<uint16_t*>(at);
      uint8_t* codes = reinterpret_cast<uint8_t*>(at + 2 * kPanel);
      for (int64_t i = 0; i < kPanel; i++) {
        const int64_t n = panel * kPanel + i;
        std::array<int8_t, kGroup> code{};
        scales[paired(i)] = n < weights.N ? group(n, g, code.data()) : 0;
        for (int64_t k = 0; k < kGroup; k++) codes[k / 4 * 4 * kPanel + 4 * i + k % 4] = uint8_t(code[size_t(k)] + 128);
      }
    }
  });
}

}  // namespace

void pack(std::byte* to, const Weights& weights, const float* W) {
  const int64_t N = weights.N, K = weights.K;
  if (weights.grouped())
    return pack_int8_panels(to, weights, [=](int64_t n, int64_t g, int8_t* code) {
      return quantize_group(code, W + n * K + g * kGroup, std::min(kGroup, K - g * kGroup));
    });
  parallel_for(weights.panels(), 1, [&](int64_t panel) {
    std::byte* at = to + panel * weights.panel_bytes();
    const float* rows = W + panel * kPanel * K;
    const int64_t columns = std::min(kPanel, N - panel * kPanel);
    weights.format == WeightFormat::kF32 ? pack_f32_panel(at, rows, columns, K) : pack_bf16_panel(at, rows, columns, K);
  });
}

void pack_int8(std::byte* to, const Weights& weights, const int8_t* code, const uint16_t* scale) {
  const int64_t K = weights.K, G = groups(K);
  pack_int8_panels(to, weights, [=](int64_t n, int64_t g, int8_t* codes) {
    std::copy_n(code + n * K + g * kGroup, std::min(kGroup, K - g * kGroup), codes);
    return scale[n * G + g];
  });
}

}  // namespace frozen

void quantize_int8(View<int8_t> code, View<uint16_t> scale, CF32 W) {
  const int64_t N = W.rows(), K = W.cols(), G = frozen::groups(K);
  require(code.shape == W.shape, "quantize_int8: code has shape {}, expected that of W, {}", code.shape, W.shape);
  require_shape("quantize_int8", "scale", scale, {N, G});
  parallel_for(N, row_grain(K), [&](int64_t n) {
    for (int64_t g = 0; g < G; g++) {
      const int64_t k = g * frozen::kGroup;
      scale[n * G + g] = frozen::quantize_group(code.row(n) + k, W.row(n) + k, std::min(frozen::kGroup, K - k));
    }
  });
}

}  // namespace isobath
