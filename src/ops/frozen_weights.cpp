// Packing of FrozenLinear's weights.
#include "ops/frozen_weights.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/float_formats.h"
#include "base/parallel.h"
#include "ops/rows.h"

namespace isobath {
namespace frozen {

namespace {

// k of a panel that are turned at a time, and from one row of the tile to the next: a line more, or its rows would
// share a few sets of the first-level cache.
constexpr int64_t kTile = 256, kTileRow = kTile + 16;

// Where column i of 32 stands among 32 values in pairs.
int64_t paired(int64_t i) { return i < kPanel / 2 ? 2 * i : 2 * (i - kPanel / 2) + 1; }

// Row n of a panel's rows, wherever its part lies; none where the matrix has ended.
struct RawRow {
  RawType type = RawType::kF32;
  const std::byte *values = nullptr, *scales = nullptr;

  void read(float* to, int64_t k, int64_t count) const {
    if (values == nullptr) {
      std::fill_n(to, count, 0.0f);
      return;
    }
    const std::byte* from = values + k * bytes_per_value(type);
    if (type == RawType::kF32) std::memcpy(to, from, size_t(count) * sizeof(float));
    if (type == RawType::kBf16) widen<bf16_to_f32>(to, from, count);
    if (type == RawType::kF16) widen<f16_to_f32>(to, from, count);
  }
};
using PanelRows = std::array<RawRow, kPanel>;

PanelRows rows_of_panel(std::span<const RawMatrix> parts, int64_t panel, int64_t K) {
  PanelRows rows;
  int64_t first = panel * kPanel;  // row of the part that is looked at; before it: negative
  size_t i = 0;
  for (const RawMatrix& part : parts) {
    for (; i < size_t(kPanel) && first + int64_t(i) < part.shape.rows(); i++) {
      const int64_t n = first + int64_t(i);
      rows[i] = {part.type, part.values + n * K * bytes_per_value(part.type),
                 part.scales == nullptr ? nullptr : part.scales + 2 * n * groups(K)};
    }
    first -= part.shape.rows();
  }
  return rows;
}

// As integers, magnitudes have the order of the numbers; infinity and NaN are above all others.
bool all_finite(const float* values, int64_t count) {
  int32_t most = 0;
  for (int64_t i = 0; i < count; i++) most = std::max(most, std::bit_cast<int32_t>(values[i]) & 0x7FFFFFFF);
  return most < 0x7F800000;
}

bool pack_floats(std::byte* to, const Weights& weights, const PanelRows& rows) {
  alignas(64) float tile[kPanel * kTileRow];
  bool sound = true;
  for (int64_t k = 0; k < weights.K; k += kTile) {
    const int64_t count = std::min(kTile, weights.K - k);
    for (int64_t i = 0; i < kPanel; i++) rows[size_t(i)].read(tile + i * kTileRow, k, count);
    for (int64_t i = 0; i < kPanel; i++) sound &= all_finite(tile + i * kTileRow, count);
    for (int64_t j = 0; j < count; j++) {
      std::byte* at = to + (k + j) * weights.step_bytes();
      if (weights.format == WeightFormat::kF32)
        for (int64_t i = 0; i < kPanel; i++) reinterpret_cast<float*>(at)[i] = tile[i * kTileRow + j];
      else
        for (int64_t i = 0; i < kPanel; i++)
          reinterpret_cast<uint16_t*>(at)[paired(i)] = f32_to_bf16(tile[i * kTileRow + j]);
    }
  }
  return sound;
}

// The codes of 32 k of a row, and the scale's bits.
struct Group {
  alignas(64) std::array<int8_t, kGroup> code{};
  uint16_t scale = 0;

  void read(const RawRow& row, int64_t g, int64_t K) {
    const int64_t k = g * kGroup, count = std::min(kGroup, K - k);
    if (row.type == RawType::kInt8) {
      code = {};
      std::memcpy(code.data(), row.values + k, size_t(count));
      std::memcpy(&scale, row.scales + 2 * g, sizeof scale);
      return;
    }
    alignas(64) float w[kGroup] = {};
    row.read(w, k, count);
    scale = cpu::quantize_weights(code.data(), w);
  }
  bool sound() const {
    return scale < 0x7F80 && std::none_of(code.begin(), code.end(), [](int8_t c) { return c == -128; });
  }
};

bool pack_int8(std::byte* to, const Weights& weights, const PanelRows& rows) {
  bool sound = true;
  for (int64_t i = 0; i < kPanel; i++) {
    Group group;
    for (int64_t g = 0; g < weights.steps(); g++) {
      std::byte* at = to + g * kGroupBytes;
      if (rows[size_t(i)].values != nullptr) group.read(rows[size_t(i)], g, weights.K);
      sound &= group.sound();
      std::memcpy(at + 2 * paired(i), &group.scale, sizeof group.scale);
      for (int64_t k = 0; k < kGroup; k += 4) {
        uint32_t word;
        std::memcpy(&word, group.code.data() + k, sizeof word);
        word ^= 0x80808080u;  // each code plus 128
        std::memcpy(at + 2 * kPanel + kPanel * k + 4 * i, &word, sizeof word);
      }
    }
  }
  return sound;
}

}  // namespace

bool pack(std::byte* to, const Weights& weights, std::span<const RawMatrix> parts) {
  std::atomic<bool> sound = true;
  parallel_for(weights.panels(), 1, [&](int64_t panel) {
    const PanelRows rows = rows_of_panel(parts, panel, weights.K);
    std::byte* at = to + panel * weights.panel_bytes();
    if (!(weights.grouped() ? pack_int8(at, weights, rows) : pack_floats(at, weights, rows))) sound = false;
  });
  return sound;
}

}  // namespace frozen

void quantize_int8(View<int8_t> code, View<uint16_t> scale, CF32 W) {
  const int64_t N = W.rows(), K = W.cols(), G = frozen::groups(K);
  require(code.shape == W.shape, "quantize_int8: code has shape {}, expected that of W, {}", code.shape, W.shape);
  require_shape("quantize_int8", "scale", scale, {N, G});
  parallel_for(N, row_grain(K), [&](int64_t n) {
    const frozen::RawRow from{RawType::kF32, reinterpret_cast<const std::byte*>(W.row(n)), nullptr};
    for (int64_t g = 0; g < G; g++) {
      frozen::Group group;
      group.read(from, g, K);
      scale[n * G + g] = group.scale;
      std::copy_n(group.code.data(), std::min(frozen::kGroup, K - g * frozen::kGroup),
                  code.row(n) + g * frozen::kGroup);
    }
  });
}

}  // namespace isobath
