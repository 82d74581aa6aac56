// Highway's instruction sets that our kernels are built for: the baseline, AVX2, AVX-512, NEON. Included before any
// header of Highway, in every file that compiles for or asks about instruction sets: one list, so that all kernels and
// the measured peak are of the same set. The others cost compile time and run our kernels no faster; vectors of unknown
// size (SVE, RVV) cannot be captured by the lambdas of rows-inl.h.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
