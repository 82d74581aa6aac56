// Memory is planned first and allocated once.
//
//   Plan plan;
//   plan.add("model.x", x, {N, D});          // notes the view; it points nowhere yet
//   Arena arena(plan);                        // one allocation; every noted view now points into it
//
// The plan is printed as it was made: name, shape, bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensor/stored.h"
#include "tensor/view.h"

namespace isobath {

class Plan {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    int64_t bytes;   // without the padding to the next cache line
    int64_t offset;  // from the start of the arena, a multiple of kAlignment unless packed
    std::function<void(std::byte*)> bind;
  };
  static constexpr int64_t kAlignment = 64;

  // The view must outlive the arena's construction. Starts on a cache line.
  template <class T>
  void add(std::string name, View<T>& view, Shape shape) {
    push(std::move(name), shape, int64_t(sizeof(T)), kAlignment, [&view, shape](std::byte* at) {
      view = {reinterpret_cast<T*>(at), shape};
    });
  }

  void add(std::string name, Stored& view, Shape shape, Storage storage) {
    push(std::move(name), shape, storage == Storage::kF32 ? 4 : 2, kAlignment, [&view, shape, storage](std::byte* at) {
      view = {at, shape, storage};
    });
  }

  // The same, but right behind the entry before it, so that neighbours are one larger array
  // (q_proj, k_proj and v_proj are one matrix product).
  template <class T>
  void add_adjacent(std::string name, View<T>& view, Shape shape) {
    push(std::move(name), shape, int64_t(sizeof(T)), alignof(T), [&view, shape](std::byte* at) {
      view = {reinterpret_cast<T*>(at), shape};
    });
  }

  // rewind(mark): what follows shares its bytes with what was added since mark() was taken. For buffers that never live
  // together, as in model/activations.cpp.
  int64_t mark() const { return end_; }
  void rewind(int64_t mark) { end_ = mark; }

  // Scratch of which one entry is in use at a time, wherever the entries stand in the plan: all share one range of
  // bytes behind the others, as long as the longest.
  void add_scratch(std::string name, View<std::byte>& view, int64_t bytes);

  int64_t bytes() const { return scratch_bytes_ == 0 ? peak_ : scratch_offset() + scratch_bytes_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const std::vector<Entry>& scratch() const { return scratch_; }  // all at scratch_offset()
  int64_t scratch_offset() const { return (peak_ + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  void push(std::string name, Shape shape, int64_t item_bytes, int64_t alignment, std::function<void(std::byte*)> bind);
  std::vector<Entry> entries_, scratch_;
  int64_t end_ = 0, peak_ = 0, scratch_bytes_ = 0;
};

// What a constructor that plans may do: kNo is the plan only, to know bytes; no buffer may be touched.
enum class Allocate : uint8_t { kYes, kNo };

// One allocation, zeroed by the kernel, on huge pages where the system grants them. Binds the plan's views.
class Arena {
 public:
  Arena() = default;
  explicit Arena(const Plan& plan);
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();
  int64_t bytes() const { return int64_t(bytes_); }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace isobath
