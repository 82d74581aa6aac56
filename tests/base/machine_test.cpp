#include "base/machine.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/parallel.h"

namespace isobath {
namespace {

TEST(MachinePeak, IsPositiveAndNamesTheMachine) {
  const MachinePeak peak = measure_machine_peak(0.02);
  EXPECT_GT(peak.fma_gflop_s, 0);
  EXPECT_GT(peak.read_gb_s, 0);
  EXPECT_TRUE(std::isfinite(peak.fma_gflop_s));
  EXPECT_TRUE(std::isfinite(peak.read_gb_s));
  EXPECT_EQ(peak.threads, thread_count());
  EXPECT_FALSE(peak.cpu.empty());
  EXPECT_FALSE(peak.simd.empty());
  EXPECT_EQ(peak.simd.find("AVX3"), std::string::npos) << "a name of Highway's, which nobody else uses";
  RecordProperty("fma_gflop_s", std::to_string(peak.fma_gflop_s));
  RecordProperty("read_gb_s", std::to_string(peak.read_gb_s));
}

TEST(MemoryReader, ReadsWhatWasAskedFor) {
  MemoryReader reader(40 << 20);
  EXPECT_NEAR(double(reader.bytes()), 40 << 20, 1024.0 * thread_count());
  EXPECT_GT(reader.gb_s(0.01), 0);
  EXPECT_TRUE(std::isfinite(reader.gb_s(0)));
  EXPECT_EQ(MemoryReader(1).bytes(), thread_count() << 20) << "a thread reads a megabyte at least";
}

}  // namespace
}  // namespace isobath
