// Packing of FrozenLinear from matrices as they lie in files: in parts, of any type, at any address.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/float_formats.h"
#include "support/compare.h"
#include "support/frozen_linear.h"
#include "support/thread_count.h"

namespace isobath {
namespace {

using namespace testing;

// Bytes of a matrix, one byte off every alignment.
struct Lying {
  std::vector<std::byte> values, scales;
  RawMatrix matrix;

  static std::vector<std::byte> shifted(const void* from, size_t count) {
    std::vector<std::byte> bytes(count + 1);
    if (count > 0) std::memcpy(bytes.data() + 1, from, count);
    return bytes;
  }
  Lying(RawType type, Shape shape, const void* from, const void* scale = nullptr, size_t scale_bytes = 0)
      : values(shifted(from, size_t(shape.numel() * bytes_per_value(type)))), scales(shifted(scale, scale_bytes)) {
    matrix = {type, shape, values.data() + 1, scale == nullptr ? nullptr : scales.data() + 1};
  }
};

template <uint16_t (*kNarrow)(float)>
std::vector<uint16_t> narrowed(const float* from, int64_t count) {
  std::vector<uint16_t> half;
  for (int64_t i = 0; i < count; i++) half.push_back(kNarrow(from[i]));
  return half;
}

Lying lying(RawType type, CF32 W) {
  if (type == RawType::kF32) return {type, W.shape, W.data};
  if (type == RawType::kBf16) return {type, W.shape, narrowed<f32_to_bf16>(W.data, W.numel()).data()};
  if (type == RawType::kF16) return {type, W.shape, narrowed<f32_to_f16>(W.data, W.numel()).data()};
  const int64_t G = (W.cols() + 31) / 32;
  std::vector<int8_t> code(size_t(W.numel()));
  std::vector<uint16_t> scale(size_t(W.rows() * G));
  quantize_int8({code.data(), W.shape}, {scale.data(), {W.rows(), G}}, W);
  return {type, W.shape, code.data(), scale.data(), scale.size() * sizeof(uint16_t)};
}

// What a file of this type makes of the numbers.
Buffer stored(RawType type, const Buffer& W) {
  Buffer rounded = W;
  for (float& w : rounded.values)
    w = type == RawType::kBf16 ? bf16_to_f32(f32_to_bf16(w)) : type == RawType::kF16 ? f16_to_f32(f32_to_f16(w)) : w;
  return rounded;
}

Frozen packed_from(WeightFormat format, const Buffer& W, std::span<const RawMatrix> parts) {
  Frozen frozen(W.shape[0], W.shape[1], 5, format);
  EXPECT_TRUE(frozen.linear.pack(parts));
  return frozen;
}

TEST(FrozenPack, PartsOfAFileAreTheMatrixThatTheyMakeUp) {
  for (const auto& [N, K] : std::vector<std::array<int64_t, 2>>{{3, 1}, {31, 33}, {64, 256}, {97, 300}, {200, 515}})
    for (const WeightFormat format : kFormats)
      for (const RawType type : {RawType::kF32, RawType::kBf16, RawType::kF16, RawType::kInt8}) {
        if (type == RawType::kInt8 && format != WeightFormat::kInt8) continue;
        SCOPED_TRACE(fmt::format("{} {} {} {}", N, K, name_of(format), int(type)));
        const Buffer x = random_buffer({5, K}, 2), W = stored(type, random_buffer({N, K}, 1));
        Frozen plain(N, K, 5, format);
        plain.linear.pack(W);
        // Three parts: of one row, up to a place inside a panel, and the rest.
        const int64_t ends[] = {1, std::max<int64_t>(2, N / 2), N};
        std::vector<Lying> bytes;
        std::vector<RawMatrix> parts;
        for (int64_t begin = 0, i = 0; i < 3; begin = ends[i++])
          bytes.push_back(lying(type, CF32(W.view()).slice(begin, ends[i] - begin)));
        for (const Lying& part : bytes) parts.push_back(part.matrix);
        for (const int threads : {1, 2}) {
          const ThreadCount with(threads);
          expect_same_bits(packed_from(format, W, parts).forward(x), plain.forward(x));
        }
      }
}

TEST(FrozenPack, TellsOfNumbersThatAreNotSound) {
  const Buffer W = random_buffer({40, 70}, 1);
  for (const WeightFormat format : kFormats) {
    Frozen frozen(40, 70, 1, format);
    for (const float wrong : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
      Buffer damaged = W;
      damaged.values[39 * 70 + 69] = wrong;
      const RawMatrix part = raw(CF32(damaged.view()));
      EXPECT_FALSE(frozen.linear.pack({&part, 1})) << name_of(format) << wrong;
    }
    const RawMatrix part = raw(CF32(W.view()));
    EXPECT_TRUE(frozen.linear.pack({&part, 1}));
  }
  Frozen frozen(40, 70, 1, WeightFormat::kInt8);
  const auto sound_with = [&](auto damage) {
    Lying part = lying(RawType::kInt8, CF32(W.view()));
    damage(part);
    return frozen.linear.pack({&part.matrix, 1});
  };
  EXPECT_TRUE(sound_with([](Lying&) {}));
  EXPECT_FALSE(sound_with([](Lying& part) { part.values[40 * 70] = std::byte(0x80); })) << "code -128";
  EXPECT_FALSE(sound_with([](Lying& part) { part.scales[2 * 40 * 3] = std::byte(0xBF); })) << "scale below 0";
  EXPECT_FALSE(sound_with([](Lying& part) { part.scales[2] = std::byte(0x7F), part.scales[1] = std::byte(0x80); }));
}

TEST(FrozenPack, RefusesPartsThatDoNotFit) {
  const Buffer W = random_buffer({6, 8}, 1);
  Frozen f32(6, 8, 1, WeightFormat::kF32), int8(6, 8, 1, WeightFormat::kInt8);
  const RawMatrix rows[] = {raw(CF32(W.view())), raw(CF32(W.view()).slice(0, 1))};
  EXPECT_THROW(f32.linear.pack(std::span(rows)), Error) << "7 rows";
  EXPECT_THROW(f32.linear.pack(std::span(rows).last(1)), Error) << "1 row";
  const RawMatrix wide = raw(CF32(W.view()).reshaped({4, 12}));
  EXPECT_THROW(f32.linear.pack({&wide, 1}), Error);
  const Lying codes = lying(RawType::kInt8, CF32(W.view()));
  EXPECT_THROW(f32.linear.pack({&codes.matrix, 1}), Error) << "codes for fp32";
  EXPECT_TRUE(int8.linear.pack({&codes.matrix, 1}));
}

}  // namespace
}  // namespace isobath
