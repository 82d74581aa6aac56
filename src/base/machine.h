// What this machine can do at most, measured: the measure that speeds are given as a share of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace isobath {

struct MachinePeak {
  double fma_gflop_s;  // fp32 fused multiply-adds, two FLOPs each, from registers, all threads together
  double read_gb_s;    // reading memory far beyond the caches, all threads together (GB = 1e9 bytes)
  std::string cpu;     // its name, "unknown" where the system does not tell
  int threads;
  std::string simd;  // the instruction set that our kernels use here
};

// Bytes that all threads together read over and over, each its part, on huge pages where the system grants them. The
// fewer they are, the more of them the caches hold from one time to the next: a large cache still shows at 100 MB.
class MemoryReader {
 public:
  static constexpr int64_t kBytes = 128 << 20;
  explicit MemoryReader(int64_t bytes = kBytes);
  ~MemoryReader();
  int64_t bytes() const;
  double gb_s(double seconds);  // of the best round

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

// The best of many short runs, `seconds` in all, beside the time to fill the reader's memory. Not cached.
MachinePeak measure_machine_peak(double seconds = 0.3);
MachinePeak measure_machine_peak(double seconds, MemoryReader& reader);

}  // namespace isobath
