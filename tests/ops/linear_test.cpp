#include "ops/linear.h"

#include <gtest/gtest.h>
#include <hwy/detect_targets.h>
#include <hwy/targets.h>

#include <array>
#include <memory>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/work.h"
#include "reference/linear.h"
#include "support/compare.h"
#include "support/thread_count.h"

namespace isobath {
namespace {

using namespace testing;

bool cpu_has_avx512() { return (hwy::SupportedTargets() & HWY_AVX3) != 0; }
bool plain_loops() { return linear_library() == "plain loops"; }
bool promises_bits() { return plain_loops() || linear_library().find("avx512") != std::string::npos; }

// A Linear with its arena and weights.
struct Made {
  Linear linear;
  Plan plan;
  Arena arena;
  Buffer W;
  Made(int64_t N, int64_t K, int64_t max_rows, std::vector<int64_t> exact = {}, bool backward = true)
      : W(random_buffer({N, K}, 1)) {
    linear.plan(plan, "test", {.N = N, .K = K, .max_rows = max_rows, .exact = exact, .backward = backward});
    arena = Arena(plan);
    linear.pack(W);
  }
};

// Element by element only where the whole differs: there are millions of them.
void expect_same_rows(const Buffer& some, const Buffer& all, int64_t first, const char* what) {
  const float* want = all.view().row(first);
  if (std::memcmp(some.values.data(), want, some.values.size() * sizeof(float)) != 0)
    expect_same_bits(some.values.data(), want, some.shape.numel(), what);
}

struct Case {
  int64_t M, N, K, max_rows;
  std::vector<int64_t> exact = {};
};

TEST(Linear, AgreesWithFloat64) {
  const std::vector<Case> cases = {{1, 1, 1, 1},        {3, 1, 64, 3},         {5, 64, 1, 9},
                                   {7, 257, 96, 7},     {70, 96, 33, 128},     {53, 33, 17, 64, {53}},
                                   {100, 65, 129, 200}, {31, 48, 80, 31, {8}}, {129, 16, 7, 4096},
                                   {500, 9, 11, 600},   {1100, 7, 5, 2048}};
  for (const auto& [M, N, K, max_rows, exact] : cases) {
    SCOPED_TRACE(fmt::format("M {} N {} K {} of {}", M, N, K, max_rows));
    Made made(N, K, max_rows, exact);
    const Buffer x = random_buffer({M, K}, 2), dy = random_buffer({M, N}, 3), dirty = random_buffer({N, K}, 4, 5);
    Buffer y({M, N}), dx({M, K}), dW = dirty;
    made.linear.forward(y, x);
    made.linear.backward_input(dx, dy);
    made.linear.backward_weight(add_to(dW), dy, x);

    const auto X = to_double(x), W = to_double(made.W), DY = to_double(dy);
    const double terms = 16;  // two normal factors: |term| < 16
    expect_close(y.values, reference::linear_forward(X, W, M, N, K), terms, double(K), "y");
    expect_close(dx.values, reference::linear_backward_input(DY, W, M, N, K), terms, double(N), "dx");
    auto want_dW = reference::linear_backward_weight(DY, X, M, N, K);
    for (size_t i = 0; i < want_dW.size(); i++) want_dW[i] += double(dirty.values[i]);
    expect_close(dW.values, want_dW, terms, double(M), "dW");
  }
}

// Linears of two shapes that take turns with one room give the bits of Linears with copies of their own, whoever was
// there before and however the weights change.
TEST(Linear, InARoomHasTheSameBits) {
  const std::array<Shape, 3> shapes{Shape{37, 19}, Shape{37, 19}, Shape{8, 70}};
  std::vector<std::unique_ptr<Made>> own;
  std::vector<Linear> linear(shapes.size());
  std::vector<Buffer> W;
  PackingRoom room;
  Plan plan;
  for (size_t i = 0; i < shapes.size(); i++) {
    const int64_t N = shapes[i][0], K = shapes[i][1];
    own.push_back(std::make_unique<Made>(N, K, 64));
    linear[i].plan(plan, "test", {.N = N, .K = K, .max_rows = 64, .exact = {}, .room = &room});
    W.push_back(random_buffer(shapes[i], 10 + i));
  }
  plan.add("room", room.bytes, {room.needed});
  const Arena arena(plan);
  EXPECT_GE(room.needed, 37 * 19 * 4);
  EXPECT_LT(plan.bytes(), own[0]->plan.bytes() + own[1]->plan.bytes() + own[2]->plan.bytes());
  for (const uint64_t change : {1, 2})
    for (size_t i = 0; i < shapes.size(); i++) {
      for (int64_t j = 0; j < W[i].shape.numel(); j++) W[i][j] += float(change);
      own[i]->linear.pack(W[i]);
      linear[i].pack(W[i]);
      for (const size_t turn : {0, 0, 1, 2, 0, 2, 1, 1}) {
        if (turn > i) continue;  // not packed yet
        const int64_t N = shapes[turn][0], K = shapes[turn][1], M = 21;
        const Buffer x = random_buffer({M, K}, 2), dy = random_buffer({M, N}, 3);
        Buffer y({M, N}), want_y({M, N}), dx({M, K}), want_dx({M, K}), dW({N, K}, 1), want_dW({N, K}, 1);
        linear[turn].forward(y, x);
        own[turn]->linear.forward(want_y, x);
        linear[turn].backward_input(dx, dy);
        own[turn]->linear.backward_input(want_dx, dy);
        linear[turn].backward_weight(add_to(dW), dy, x);
        own[turn]->linear.backward_weight(add_to(want_dW), dy, x);
        expect_same_bits(y, want_y, "y");
        expect_same_bits(dx, want_dx, "dx");
        expect_same_bits(dW, want_dW, "dW");
      }
    }
}

// Who is in the room is packed already.
TEST(Linear, InARoomPacksOncePerTurn) {
  PackingRoom room;
  Plan plan;
  std::array<Linear, 2> linear;
  for (Linear& l : linear) l.plan(plan, "test", {.N = 5, .K = 7, .max_rows = 4, .exact = {}, .room = &room});
  plan.add("room", room.bytes, {room.needed});
  const Arena arena(plan);
  const Buffer W = random_buffer({5, 7}, 1), x = random_buffer({4, 7}, 2), dy = random_buffer({4, 5}, 3);
  Buffer y({4, 5}), dx({4, 7});
  for (Linear& l : linear) l.pack(W);
  const auto packs = [&](auto work) {
    const Profile profile;
    work();
    return profile.find("linear_pack") == nullptr ? 0 : profile.find("linear_pack")->calls;
  };
  EXPECT_EQ(packs([&] { linear[0].forward(y, x); }), 1);
  EXPECT_EQ(packs([&] { linear[0].forward(y, x); }), 0);
  EXPECT_EQ(packs([&] { linear[0].backward_input(dx, dy); }), 1) << "the other direction";
  EXPECT_EQ(packs([&] { linear[1].backward_input(dx, dy); }), 1) << "another's weights";
  EXPECT_EQ(packs([&] { linear[0].pack(W), linear[1].backward_input(dx, dy); }), 0) << "nobody in the room changed";
  EXPECT_EQ(packs([&] { linear[1].pack(W), linear[1].backward_input(dx, dy); }), 1) << "changed weights";
}

TEST(Linear, NeitherReadsNorWritesBeyondItsRows) {
  const int64_t M = 21, N = 37, K = 19;
  Made made(N, K, 64);
  Buffer x = random_buffer({M + 1, K}, 2), y({M + 1, N}, 7.0f);
  for (int64_t k = 0; k < K; k++) x[M * K + k] = std::numeric_limits<float>::quiet_NaN();
  made.linear.forward(y.view().slice(0, M), x.view().slice(0, M));
  for (int64_t i = 0; i < M * N; i++) ASSERT_TRUE(std::isfinite(y[i])) << i;
  for (int64_t n = 0; n < N; n++) EXPECT_EQ(y[M * N + n], 7.0f);
}

TEST(Linear, NoRowsIsNoWork) {
  Made made(8, 4, 16);
  Buffer y({0, 8}), x({0, 4}), dW({8, 4}, 3.0f);
  made.linear.forward(y, x);
  made.linear.backward_input(x, y);
  made.linear.backward_weight(add_to(dW), y, x);
  for (const float v : dW.values) EXPECT_EQ(v, 3.0f);
}

// Lists of M rows, alone and as pieces: bits of the rows against those of `want`, which ran all rows at once.
void expect_rows_of(const Made& made, const std::vector<int64_t>& lengths, const Buffer& x, const Buffer& dy,
                    const Buffer& want_y, const Buffer& want_dx) {
  const int64_t N = dy.shape[1], K = x.shape[1];
  for (const int64_t M : lengths) {
    SCOPED_TRACE(fmt::format("N {} K {} M {}", N, K, M));
    const int64_t first = x.shape[0] - M;  // the last M rows, so that places in the list differ too
    Buffer y({M, N}), dx({M, K});
    made.linear.forward(y, x.view().slice(first, M));
    made.linear.backward_input(dx, dy.view().slice(first, M));
    expect_same_rows(y, want_y, first, "y");
    expect_same_rows(dx, want_dx, first, "dx");
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Linear, RowBitsDependOnTheRowAlone) {
  if (!promises_bits()) GTEST_SKIP() << "held with AVX-512 only; kernel here: " << linear_library();
  std::vector<int64_t> every(70);
  std::iota(every.begin(), every.end(), 1);
  const std::vector<int64_t> some = {1, 2, 3, 5, 13, 16, 31, 64, 127, 500};
  for (const auto& [N, K] : {std::pair<int64_t, int64_t>{257, 96}, {96, 33}, {1, 64}, {64, 1}, {1152, 384}}) {
    const int64_t max_rows = plain_loops() ? 500 : 600;
    const Buffer x = random_buffer({max_rows, K}, 5), dy = random_buffer({max_rows, N}, 6);
    Buffer want_y({max_rows, N}), want_dx({max_rows, K});
    for (const int threads : {2, 1}) {
      const ThreadCount with(threads);
      const Made pieces(N, K, max_rows), exact(N, K, max_rows, N * K < 100'000 ? every : some);
      if (threads == 2) pieces.linear.forward(want_y, x), pieces.linear.backward_input(want_dx, dy);
      expect_rows_of(pieces, some, x, dy, want_y, want_dx);
      expect_rows_of(exact, N * K < 100'000 ? every : some, x, dy, want_y, want_dx);
    }
  }
}

TEST(Linear, WeightGradientBitsAreThoseOfOneThread) {
  if (!promises_bits()) GTEST_SKIP() << "held with AVX-512 only; kernel here: " << linear_library();
  for (const auto& [M, N, K] : {std::array<int64_t, 3>{500, 257, 96}, {512, 96, 33}, {333, 1, 64}, {61, 385, 384}}) {
    const Buffer x = random_buffer({M, K}, 5), dy = random_buffer({M, N}, 6);
    std::vector<Buffer> dW;
    for (const int threads : {1, 2}) {
      const ThreadCount with(threads);
      Made made(N, K, 512);
      dW.push_back(random_buffer({N, K}, 7));
      made.linear.backward_weight(add_to(dW.back()), dy, x);
    }
    expect_same_bits(dW[0], dW[1], "dW");
  }
}

TEST(Linear, PackingAgainReplacesTheWeights) {
  Made made(33, 17, 4);
  const Buffer x = random_buffer({4, 17}, 2);
  Buffer before({4, 33}), after({4, 33}), doubled = made.W;
  made.linear.forward(before, x);
  for (float& w : doubled.values) w *= 2;
  made.linear.pack(doubled);
  made.linear.forward(after, x);
  for (size_t i = 0; i < after.values.size(); i++) EXPECT_EQ(after.values[i], 2 * before.values[i]);
}

TEST(Linear, WorksAfterBeingMoved) {
  Linear moved;
  Buffer y({3, 9}), want({3, 9});
  const Buffer x = random_buffer({3, 5}, 2);
  Made made(9, 5, 3);
  made.linear.forward(want, x);
  moved = std::move(made.linear);
  moved.forward(y, x);
  expect_same_bits(y, want);
  EXPECT_EQ(moved.N(), 9);
  EXPECT_EQ(moved.K(), 5);
}

// The library's scratch is one product's at a time: a plan with many Linears has it once, and their results are those
// of each alone.
TEST(Linear, SharesScratchWithTheOthersOfItsPlan) {
  const int64_t M = 70, N = 96, K = 33;
  Made alone(N, K, M);
  Plan plan;
  Linear linears[3];
  for (Linear& linear : linears) linear.plan(plan, "test", {.N = N, .K = K, .max_rows = M, .exact = {}});
  EXPECT_LE(plan.bytes(), 3 * alone.plan.bytes());
  EXPECT_EQ(plan.bytes() - plan.scratch_offset(), alone.plan.bytes() - alone.plan.scratch_offset());
  const Arena arena(plan);
  for (Linear& linear : linears) linear.pack(alone.W);
  const Buffer x = random_buffer({M, K}, 2), dy = random_buffer({M, N}, 3);
  Buffer y({M, N}), dx({M, K}), dW({N, K}, 0);
  alone.linear.forward(y, x);
  alone.linear.backward_input(dx, dy);
  alone.linear.backward_weight(add_to(dW), dy, x);
  for (int round = 0; round < 2; round++)
    for (const Linear& linear : linears) {
      Buffer y2({M, N}), dx2({M, K}), dW2({N, K}, 0);
      linear.forward(y2, x);
      linear.backward_input(dx2, dy);
      linear.backward_weight(add_to(dW2), dy, x);
      expect_same_bits(y2, y);
      expect_same_bits(dx2, dx);
      expect_same_bits(dW2, dW);
    }
}

TEST(Linear, CountsMultiplyAddsInEveryDirection) {
  const int64_t M = 21, N = 37, K = 19;
  Made made(N, K, 64);
  const Buffer x = random_buffer({M, K}, 2), dy = random_buffer({M, N}, 3);
  Buffer y({M, N}), dx({M, K}), dW({N, K}, 0);
  const auto counted = [](auto call) {
    const int64_t before = executed_multiply_adds;
    call();
    return executed_multiply_adds - before;
  };
  EXPECT_EQ(counted([&] { made.linear.forward(y, x); }), linear_multiply_adds(M, N, K));
  EXPECT_EQ(counted([&] { made.linear.backward_input(dx, dy); }), linear_multiply_adds(M, N, K));
  EXPECT_EQ(counted([&] { made.linear.backward_weight(add_to(dW), dy, x); }), linear_multiply_adds(M, N, K));
}

TEST(Linear, ForwardOnlyKeepsOneCopyOfTheWeights) {
  const Made both(64, 64, 8), forward(64, 64, 8, {}, /*backward=*/false);
  EXPECT_LT(forward.plan.bytes(), both.plan.bytes() + (plain_loops() ? 1 : -64 * 64 * 4 + 1));
  Buffer dx({1, 64}), dy({1, 64});
  EXPECT_THROW(forward.linear.backward_input(dx, dy), Error);
  EXPECT_THROW(forward.linear.backward_weight(add_to(dx), dy, dx), Error);
}

TEST(Linear, RefusesWhatWasNotPlanned) {
  Plan plan;
  Linear linear;
  Buffer x({3, 4}, 0), y({3, 5}, 0), W({5, 4}, 0), dW({4, 5}, 0);
  const std::array<int64_t, 1> too_large = {9};
  EXPECT_THROW(linear.forward(y, x), Error) << "not planned";
  EXPECT_THROW(linear.plan(plan, "w", {.N = 5, .K = 4, .max_rows = 8, .exact = too_large}), Error);
  EXPECT_THROW(linear.plan(plan, "w", {.N = 0, .K = 4, .max_rows = 8, .exact = {}}), Error);
  EXPECT_THROW(linear.plan(plan, "w", {.N = 5, .K = 4, .max_rows = 0, .exact = {}}), Error);
  linear.plan(plan, "w", {.N = 5, .K = 4, .max_rows = 2, .exact = {}});
  EXPECT_THROW(linear.pack(W), Error) << "no arena";
  const Arena arena(plan);
  EXPECT_THROW(linear.forward(y, x), Error) << "not packed";
  EXPECT_THROW(linear.pack(dW), Error) << "transposed";
  linear.pack(W);
  EXPECT_THROW(linear.forward(y, x), Error) << "3 rows of 2";
  const F32 x2 = x.view().slice(0, 2), y2 = y.view().slice(0, 2);
  linear.forward(y2, x2);
  EXPECT_THROW(linear.forward(x2, y2), Error) << "swapped";
  EXPECT_THROW(linear.forward(y2, x.view().slice(0, 1)), Error) << "rows differ";
  EXPECT_THROW(linear.backward_weight(add_to(dW), y2, x2), Error) << "dW transposed";
}

TEST(Linear, ChoosesAFastKernel) {
  EXPECT_FALSE(linear_library().empty());
  if (plain_loops()) GTEST_SKIP() << "built without a GEMM library";
  if (!cpu_has_avx512()) GTEST_SKIP() << "this CPU has no AVX-512; kernel: " << linear_library();
  EXPECT_NE(linear_library().find("avx512"), std::string::npos) << linear_library();
}

}  // namespace
}  // namespace isobath
