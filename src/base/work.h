// What an op is about to do, said once at its entry; and where the time of a run goes.
//
//   void gate_forward(F32 g, CF32 r, CI32 index, Gate gate) {
//     const Work work("gate_forward", {.bytes = 2 * bytes_of(g) + bytes_of(index)});
//
// Multiply-adds are those that the kernels execute, to the unit. An op whose number only its loops know (attention)
// leaves them out and calls count_multiply_adds inside; likewise bytes that depend on values (a selection). The plan
// says beforehand what the count will be (model/flops.h), and a test compares the two.
//
// Bytes are the least traffic with memory: every element that the op's contract says is read or written, once; of an
// array that is both, be it added to or worked on in place, twice. Of an array in which rows are looked up: as many
// rows as are asked for, and at most all. Scratch counts nothing, a packed matrix what the plain one would. So bytes
// say how much an op must move, not how well it does it; a step with one pass over memory too many has more of them.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace isobath {

struct Cost {
  int64_t multiply_adds = 0;
  int64_t bytes = 0;
  bool product = false;  // a matrix product or attention: what a step is for. Everything else is what it loses.
};

inline std::atomic<int64_t> executed_multiply_adds{0}, executed_bytes{0};

inline void count_multiply_adds(int64_t n) { executed_multiply_adds.fetch_add(n, std::memory_order_relaxed); }
inline void count_bytes(int64_t n) { executed_bytes.fetch_add(n, std::memory_order_relaxed); }

class Work;

// What ops did and how long they took, by op, while this object lives: those called by the thread that made it. Nothing
// allocates. Profiles nest; the innermost records. Multiply-adds and bytes are differences of the counters above, so
// while a profile is active no other thread may run ops.
class Profile {
 public:
  struct Op {
    const char* name = nullptr;
    bool product = false;
    int64_t calls = 0, multiply_adds = 0, bytes = 0;
    double seconds = 0;  // without those of ops called inside
  };
  Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;
  ~Profile();

  // In the order of their first call. Over kMostOps different ones, the rest are one entry, "others".
  std::span<const Op> ops() const { return {ops_.data(), count_}; }
  const Op* find(std::string_view name) const;  // null: it was not called

  static constexpr size_t kMostOps = 64;

 private:
  friend class Work;
  Op& entry(const char* name, bool product);
  std::array<Op, kMostOps + 1> ops_;
  size_t count_ = 0;
  Work* innermost_ = nullptr;
  Profile* outer_;
};

// The profile of this thread: null unless somebody made one.
inline constinit thread_local Profile* active_profile = nullptr;

// The scope of one call of an op. Without a profile it adds two numbers and asks one question.
class Work {
 public:
  Work(const char* name, const Cost& cost) : profile_(active_profile) {
    if (profile_ != nullptr) [[unlikely]]
      begin(name, cost.product);
    count_multiply_adds(cost.multiply_adds);
    count_bytes(cost.bytes);
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work() {
    if (profile_ != nullptr) [[unlikely]]
      end();
  }

 private:
  using Clock = std::chrono::steady_clock;
  void begin(const char* name, bool product);
  void end();

  Profile* profile_;
  // Without a profile nothing of the rest is set.
  const char* name_;
  bool product_;
  Work* caller_;
  int64_t multiply_adds_, bytes_;  // of the counters, before
  Clock::time_point start_;
  struct {
    int64_t multiply_adds, bytes;
    double seconds;
  } inside_;  // what the scopes within this one did
};

}  // namespace isobath
