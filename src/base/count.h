// Multiply-adds really executed, counted inside the kernels. The plan says beforehand what the count will be
// (every op's flops()), and a test compares the two to the unit.
#pragma once

#include <atomic>
#include <cstdint>

namespace isobath {

inline std::atomic<int64_t> executed_multiply_adds{0};

inline void count_multiply_adds(int64_t n) { executed_multiply_adds.fetch_add(n, std::memory_order_relaxed); }

}  // namespace isobath
