#include "train/schedule.h"

#include <gtest/gtest.h>

namespace isobath {
namespace {

TEST(Schedule, rises_to_the_peak_then_follows_a_cosine) {
  const Schedule s{.peak = 2, .steps = 101, .warmup = 0.01, .final_rate = 0.1};  // one step of warm-up
  EXPECT_DOUBLE_EQ(s.at(1), 2);
  EXPECT_DOUBLE_EQ(s.at(51), 2 * (0.1 + 0.9 * 0.5));
  EXPECT_DOUBLE_EQ(s.at(101), 2 * 0.1);
  const Schedule slow{.peak = 1, .steps = 100, .warmup = 0.1, .final_rate = 0};
  for (int64_t step = 1; step <= 10; step++) EXPECT_DOUBLE_EQ(slow.at(step), double(step) / 10);
  for (int64_t step = 11; step <= 100; step++) {
    EXPECT_NEAR(slow.at(step), 0.5 * (1 + std::cos(std::numbers::pi * double(step - 10) / 90)), 1e-14);
    EXPECT_LT(slow.at(step), slow.at(step - 1));
  }
  EXPECT_NEAR(slow.at(100), 0, 1e-15);
}

TEST(Schedule, extremes) {
  EXPECT_DOUBLE_EQ((Schedule{.peak = 3, .steps = 1}).at(1), 3);
  EXPECT_DOUBLE_EQ((Schedule{.peak = 3, .steps = 2, .warmup = 0}).at(1), 3);
  const Schedule all{.peak = 3, .steps = 4, .warmup = 1};  // never falls
  EXPECT_DOUBLE_EQ(all.at(1), 0.75);
  EXPECT_DOUBLE_EQ(all.at(4), 3);
  const Schedule flat{.peak = 3, .steps = 9, .warmup = 0, .final_rate = 1};
  for (int64_t step = 1; step <= 9; step++) EXPECT_DOUBLE_EQ(flat.at(step), 3);
}

TEST(CapacityAnneal, starts_after_the_first_step_and_arrives) {
  EXPECT_EQ((CapacityAnneal{}.at(1)), 1);
  const CapacityAnneal linear{.steps = 4}, cosine{.steps = 4, .cosine = true};
  EXPECT_EQ(linear.at(1), 0);
  EXPECT_EQ(linear.at(2), 0.25);
  EXPECT_EQ(linear.at(5), 1);
  EXPECT_EQ(linear.at(50), 1);
  EXPECT_EQ(cosine.at(1), 0);
  EXPECT_NEAR(cosine.at(3), 0.5, 1e-15);
  EXPECT_LT(cosine.at(2), 0.25);
  EXPECT_EQ(cosine.at(5), 1);
}

}  // namespace
}  // namespace isobath
