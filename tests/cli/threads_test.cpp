// Settings of the OpenMP runtime, which it reads before main() does.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cli_support.h"

namespace isobath {
namespace {

using namespace testing;

// The variable `name` of a run's environment once it trains; "none" without one.
std::string of_a_run(const std::string& name) {
  const Workplace work;
  Program program(work.train({"--steps", "1000000"}));
  while (program.running() && !fs::exists(work.out + "/metrics.jsonl"))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::string variables = read_file(fmt::format("/proc/{}/environ", program.id()));
  std::replace(variables.begin(), variables.end(), '\0', '\n');
  for (const std::string& line : lines_of(variables))
    if (line.starts_with(name + "=")) return line.substr(name.size() + 1);
  return "none";
}

class WaitingThreads : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef _OPENMP
    GTEST_SKIP() << "built without OpenMP";
#endif
    ::unsetenv("OMP_WAIT_POLICY");
    ::unsetenv("GOMP_SPINCOUNT");
  }
};

TEST_F(WaitingThreads, sleep_soon) { EXPECT_EQ(of_a_run("GOMP_SPINCOUNT"), "1000"); }

TEST_F(WaitingThreads, do_as_the_user_says) {
  ::setenv("GOMP_SPINCOUNT", "77", 1);
  EXPECT_EQ(of_a_run("GOMP_SPINCOUNT"), "77");
  ::unsetenv("GOMP_SPINCOUNT");
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  EXPECT_EQ(of_a_run("GOMP_SPINCOUNT"), "none");
}

}  // namespace
}  // namespace isobath
