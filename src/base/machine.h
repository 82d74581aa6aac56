// What this machine can do at most, measured: the measure that speeds are given as a share of.
#pragma once

#include <string>

namespace isobath {

struct MachinePeak {
  double fma_gflop_s;  // fp32 fused multiply-adds, two FLOPs each, from registers, all threads together
  double read_gb_s;    // reading memory far beyond the caches, all threads together (GB = 1e9 bytes)
  std::string cpu;     // its name, "unknown" where the system does not tell
  int threads;
  std::string simd;  // the instruction set that our kernels use here
};

// The best of many short runs, `seconds` in all and the time to fill 64 MB per thread to read from. Not cached.
MachinePeak measure_machine_peak(double seconds = 0.3);

}  // namespace isobath
