// Views whose number format is known when the program runs: fp32 or bfloat16. What a forward pass leaves for the
// backward pass may be kept in half the bytes; ops that take a Stored or CStored say what they read and write in it.
// Arithmetic is fp32 in both: a bf16 number is widened as it is read, a result rounded as it is written.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/error.h"
#include "base/float_formats.h"
#include "tensor/view.h"

namespace isobath {

enum class Storage : uint8_t { kF32, kBf16 };

// The upper half of a float: its range and 8 significant bits. Rounding to it (to nearest, ties to even) moves a
// normal number by at most 2^-8 of itself.
struct Bf16 {
  uint16_t bits;
};

inline float to_f32(float value) { return value; }
inline float to_f32(Bf16 value) { return bf16_to_f32(value.bits); }
template <class T>
T to_stored(float value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return {f32_to_bf16(value)};
  else
    return value;
}

template <bool kConst>
struct StoredView {
  template <class T>
  using Item = std::conditional_t<kConst, const T, T>;

  Item<std::byte>* data = nullptr;
  Shape shape;
  Storage storage = Storage::kF32;
  Device device = Device::kCpu;

  StoredView() = default;
  StoredView(Item<std::byte>* at, Shape shape, Storage storage, Device device = Device::kCpu)
      : data(at), shape(shape), storage(storage), device(device) {}
  // Anything that is a view of one of the two formats is one of either.
  template <std::convertible_to<View<Item<float>>> V>
  StoredView(V&& v) : StoredView(View<Item<float>>(v), Storage::kF32) {}
  template <std::convertible_to<View<Item<Bf16>>> V>
  StoredView(V&& v) : StoredView(View<Item<Bf16>>(v), Storage::kBf16) {}
  template <std::same_as<StoredView<false>> V>
  StoredView(const V& v) : data(v.data), shape(v.shape), storage(v.storage), device(v.device) {}

  int64_t rows() const { return shape.rows(); }
  int64_t cols() const { return shape.cols(); }
  bool empty() const { return data == nullptr; }  // an optional argument that was left out
  int64_t item_bytes() const { return storage == Storage::kF32 ? 4 : 2; }
  int64_t bytes() const { return empty() ? 0 : shape.numel() * item_bytes(); }
  StoredView slice(int64_t begin, int64_t count) const {
    return {data + begin * cols() * item_bytes(), {count, cols()}, storage, device};
  }

  // As what it is.
  template <class T>
  View<Item<T>> as() const {
    static_assert(std::is_same_v<T, float> || std::is_same_v<T, Bf16>);
    require(storage == (std::is_same_v<T, float> ? Storage::kF32 : Storage::kBf16),
            "a view of {} numbers was read as {}", storage == Storage::kF32 ? "fp32" : "bf16",
            std::is_same_v<T, float> ? "fp32" : "bf16");
    return {reinterpret_cast<Item<T>*>(data), shape, device};
  }

 private:
  template <class T>
  StoredView(View<T> v, Storage storage)
      : StoredView(reinterpret_cast<Item<std::byte>*>(v.data), v.shape, storage, v.device) {}
};
using Stored = StoredView<false>;
using CStored = StoredView<true>;

template <bool kConst>
int64_t bytes_touched(const StoredView<kConst>& view) {
  return view.bytes();
}

// f(view) with the view in its own format.
template <bool kConst, class F>
decltype(auto) with_format(const StoredView<kConst>& v, F f) {
  return v.storage == Storage::kF32 ? f(v.template as<float>()) : f(v.template as<Bf16>());
}

}  // namespace isobath
