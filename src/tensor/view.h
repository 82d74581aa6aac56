// What memory looks like: typed views of row-major arrays. Nothing owns memory here.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace isobath {

enum class Device : uint8_t { kCpu, kCuda };

// Up to four lengths, outermost first. Shape() is a scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> lengths) {
    for (const int64_t n : lengths) length_[rank_++] = n;
  }
  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return length_[size_t(axis)]; }
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; i++) n *= length_[size_t(i)];
    return n;
  }
  int64_t cols() const { return rank_ == 0 ? 1 : length_[size_t(rank_ - 1)]; }  // the innermost length
  int64_t rows() const { return cols() == 0 ? 0 : numel() / cols(); }           // product of the others
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> length_{};
  int8_t rank_ = 0;
};

template <class T>
struct View {
  T* data = nullptr;
  Shape shape;
  Device device = Device::kCpu;

  int64_t numel() const { return shape.numel(); }
  int64_t rows() const { return shape.rows(); }
  int64_t cols() const { return shape.cols(); }
  bool empty() const { return data == nullptr; }  // an optional argument that was left out
  int64_t bytes() const { return empty() ? 0 : numel() * int64_t(sizeof(T)); }
  T* row(int64_t n) const { return data + n * shape.cols(); }
  T& operator[](int64_t i) const { return data[i]; }

  // Rows [begin, begin + count) of a matrix, or entries of a vector.
  View slice(int64_t begin, int64_t count) const {
    if (shape.rank() == 1) return {data + begin, {count}, device};
    return {row(begin), {count, cols()}, device};
  }
  View reshaped(Shape to) const { return {data, to, device}; }
  operator View<const T>() const { return {data, shape, device}; }
};

template <class T>
View<const T> view_of(const std::vector<T>& values, int64_t count) {
  return {values.data(), {count}};
}
template <class T>
View<const T> view_of(const std::vector<T>& values) {
  return view_of(values, int64_t(values.size()));
}

using F32 = View<float>;
using CF32 = View<const float>;
using I32 = View<int32_t>;
using CI32 = View<const int32_t>;

// A destination that is added to, where a plain view is overwritten. The caller has to say so: add_to(dw).
struct Accum {
  F32 view;
};
inline Accum add_to(F32 view) { return {view}; }

// Bytes of these arrays, each touched once: what an op says of its traffic (base/work.h). What is added to is read and
// written. An argument that was left out has none.
inline int64_t bytes_touched(Accum sum) { return 2 * sum.view.bytes(); }
template <class T>
int64_t bytes_touched(View<T> view) {
  return view.bytes();
}
template <class... Arrays>
int64_t bytes_of(const Arrays&... arrays) {
  return (bytes_touched(arrays) + ... + 0);
}

}  // namespace isobath

template <>
struct fmt::formatter<isobath::Shape> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const isobath::Shape& shape, Context& context) const {
    std::string text = "(";
    for (int i = 0; i < shape.rank(); i++) text.append(i ? "," : "").append(std::to_string(shape[i]));
    return fmt::formatter<std::string>::format(text.append(")"), context);
  }
};
