#include "ops/rope.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/parallel.h"
#include "reference/rope.h"
#include "support/compare.h"

namespace isobath {
namespace {

using namespace isobath::testing;

constexpr double kTheta = 10000;

Buffer table_of(int64_t positions, int64_t K) {
  Buffer table({positions, K});
  rope_table(table, kTheta);
  return table;
}

TEST(Rope, TableIsTheFloat64AngleRounded) {
  const Buffer table = table_of(5000, 6);
  for (const int64_t t : {int64_t(0), int64_t(1), int64_t(4999)})
    for (int64_t i = 0; i < 3; i++) {
      const double angle = double(t) * std::pow(kTheta, -2.0 * double(i) / 6.0);
      EXPECT_FLOAT_EQ(table[t * 6 + i], float(std::cos(angle)));
      EXPECT_FLOAT_EQ(table[t * 6 + 3 + i], float(std::sin(angle)));
    }
}

TEST(Rope, ForwardIsTheFormulaAtPositionsWithGaps) {
  const std::vector<int32_t> position{0, 5, 9, 1000, 9, 64, 3};
  for (const int64_t K : {2, 6, 8, 30, 64, 66, 128})
    for (const int64_t heads : {1, 3}) {
      Buffer x = random_buffer({7, heads * K + 5}, 1);
      const auto want = reference::rope(to_double(x), position, heads, K, kTheta);
      rope_forward(x, x, view_of(position), table_of(1001, K), heads);
      expect_close(x.values, want, max_abs(x), 2);
    }
}

TEST(Rope, OtherColumnsKeepTheirBits) {
  const std::vector<int32_t> position{7, 8, 20};
  const Buffer before = random_buffer({3, 4 * 10}, 2);
  Buffer after = before;
  rope_forward(after, after, view_of(position), table_of(21, 10), 2);
  for (int64_t s = 0; s < 3; s++) {
    expect_same_bits(before.view().row(s) + 20, after.view().row(s) + 20, 20);
    EXPECT_NE(before.view().row(s)[19], after.view().row(s)[19]);
  }
}

TEST(Rope, BackwardUndoesForward) {
  const std::vector<int32_t> position{0, 1, 2, 77, 100};
  const Buffer before = random_buffer({5, 3 * 36}, 3);
  Buffer x = before;
  const Buffer table = table_of(101, 36);
  rope_forward(x, x, view_of(position), table, 3);
  rope_backward(x, view_of(position), table, 3);
  expect_close(x.values, before.values, max_abs(before), 2);
}

TEST(Rope, BackwardIsTheTransposeOfForward) {
  const std::vector<int32_t> position{3, 11};
  const Buffer table = table_of(12, 22), x = random_buffer({2, 22}, 4), dy = random_buffer({2, 22}, 5);
  Buffer y = x, dx = dy;
  rope_forward(y, y, view_of(position), table, 1);
  rope_backward(dx, view_of(position), table, 1);
  double forward = 0, backward = 0;
  for (int64_t i = 0; i < 44; i++) forward += double(dy[i]) * y[i], backward += double(dx[i]) * x[i];
  EXPECT_NEAR(forward, backward, 1e-5);
}

TEST(Rope, BitsDoNotDependOnThreadsOrNeighbours) {
  const int64_t rows = 333, heads = 5, K = 34;
  std::vector<int32_t> position(rows);
  for (size_t s = 0; s < position.size(); s++) position[s] = int32_t(s * 7 % 501);
  const Buffer table = table_of(501, K), x = random_buffer({rows, heads * K}, 6);
  Buffer one = x, two = x, alone = x;
  const int threads = thread_count();
  set_thread_count(1);
  rope_forward(one, one, view_of(position), table, heads);
  set_thread_count(2);
  rope_forward(two, two, view_of(position), table, heads);
  set_thread_count(threads);
  for (int64_t s = 0; s < rows; s++)
    rope_forward(alone.view().slice(s, 1), alone.view().slice(s, 1), view_of(position).slice(s, 1), table, heads);
  expect_same_bits(one, two);
  expect_same_bits(one, alone);
}

TEST(Rope, EmptyList) {
  Buffer x({0, 16});
  rope_forward(x, x, CI32{nullptr, {0}}, table_of(4, 8), 2);
  rope_backward(x, CI32{nullptr, {0}}, table_of(4, 8), 2);
}

TEST(Rope, RefusesWhatItCannotDo) {
  const Buffer table = table_of(4, 8);
  Buffer x = random_buffer({1, 16}, 7), odd({4, 7});
  const std::vector<int32_t> late{4}, negative{-1}, fine{3}, two{1, 2};
  EXPECT_THROW(rope_table(odd, kTheta), Error);
  EXPECT_THROW(rope_forward(x, x, view_of(fine), odd, 1), Error);
  EXPECT_THROW(rope_forward(x, x, view_of(late), table, 2), Error);
  EXPECT_THROW(rope_forward(x, x, view_of(negative), table, 2), Error);
  EXPECT_THROW(rope_forward(x, x, view_of(fine), table, 3), Error);
  EXPECT_THROW(rope_backward(x, view_of(two), table, 2), Error);
}

}  // namespace
}  // namespace isobath
