// Where a plan's entries come to lie.
#include "tensor/arena.h"

#include <gtest/gtest.h>

namespace isobath {
namespace {

TEST(Plan, SharedScratchLiesBehindEveryEntryWhereverItWasAdded) {
  Plan plan;
  View<float> before, after;
  View<std::byte> small, large;
  plan.add("before", before, {3});
  plan.add_scratch("small", small, 10);
  plan.add("after", after, {5, 7});
  plan.add_scratch("large", large, 1000);
  EXPECT_EQ(plan.bytes(), plan.scratch_offset() + 1000) << "the longest counts once";
  const Arena arena(plan);
  EXPECT_EQ(arena.bytes(), plan.bytes());
  EXPECT_EQ(small.data, large.data);
  EXPECT_EQ(small.numel(), 10);
  EXPECT_EQ(large.numel(), 1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(small.data) % Plan::kAlignment, 0u);
  EXPECT_GE(small.data, reinterpret_cast<std::byte*>(after.data + after.numel()));
  EXPECT_EQ(large.data + large.numel(), arena.data() + arena.bytes());
}

TEST(Plan, WithoutScratchEndsWithItsLastEntry) {
  Plan plan;
  View<float> x;
  plan.add("x", x, {3});
  EXPECT_EQ(plan.bytes(), 12);
}

}  // namespace
}  // namespace isobath
