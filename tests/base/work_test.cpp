#include "base/work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace isobath {
namespace {

void inner() { const Work work("inner", {.multiply_adds = 3, .bytes = 40, .product = true}); }
void counts_inside() {
  const Work work("counts_inside", {.bytes = 1});
  count_multiply_adds(5);
}
void outer() {
  const Work work("outer", {.multiply_adds = 100, .bytes = 1000});
  inner();
  inner();
}

void expect_op(const Profile::Op* op, int64_t calls, int64_t multiply_adds, int64_t bytes, bool product) {
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->calls, calls);
  EXPECT_EQ(op->multiply_adds, multiply_adds);
  EXPECT_EQ(op->bytes, bytes);
  EXPECT_EQ(op->product, product);
}

TEST(Work, IsCountedWithoutAProfile) {
  const int64_t multiply_adds = executed_multiply_adds, bytes = executed_bytes;
  outer();
  counts_inside();
  EXPECT_EQ(executed_multiply_adds - multiply_adds, 111);
  EXPECT_EQ(executed_bytes - bytes, 1081);
}

TEST(Profile, HasEachOpWithoutThoseInsideIt) {
  const Profile profile;
  outer();
  counts_inside();
  outer();
  ASSERT_EQ(profile.ops().size(), 3u);
  expect_op(profile.find("outer"), 2, 200, 2000, false);
  expect_op(profile.find("inner"), 4, 12, 160, true);
  expect_op(profile.find("counts_inside"), 1, 5, 1, false);
  EXPECT_EQ(profile.find("nobody"), nullptr);
}

// Were the time inside counted for the caller as well, the sum would be some twice of what went by.
TEST(Profile, CountsNoTimeTwice) {
  const Profile profile;
  const auto start = std::chrono::steady_clock::now();
  {
    const Work caller("caller", {});
    const Work called("called", {});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double sum = 0;
  for (const Profile::Op& op : profile.ops()) sum += op.seconds;
  EXPECT_GE(profile.find("called")->seconds, 0.005);
  EXPECT_LE(sum, passed);
}

TEST(Profile, OfOneThreadInsideAnotherProfile) {
  const Profile profile;
  {
    const Profile within;
    inner();
    EXPECT_EQ(within.ops().size(), 1u);
  }
  std::thread(inner).join();
  EXPECT_TRUE(profile.ops().empty());
  inner();
  EXPECT_EQ(profile.find("inner")->calls, 1);
}

TEST(Profile, HasRoomForTheRest) {
  const Profile profile;
  std::vector<std::string> names;
  for (size_t i = 0; i < Profile::kMostOps + 5; i++) names.push_back("op" + std::to_string(i));
  for (const std::string& name : names) const Work work(name.c_str(), {.bytes = 1});
  expect_op(profile.find("op0"), 1, 0, 1, false);
  expect_op(profile.find("others"), 5, 0, 5, false);
}

}  // namespace
}  // namespace isobath
