// An op on rows of bf16 does to the bit what it does on the same numbers in fp32, and writes the result rounded. Odd
// sizes, so that rows end within vectors; every instruction set that the machine has.
#include "base/simd.h"
// After simd.h, which says what is built.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <array>
#include <bit>

#include "base/error.h"
#include "ops/attention.h"
#include "ops/residual_add.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/swiglu.h"
#include "ops/widen.h"
#include "support/bf16.h"
#include "support/rows.h"

namespace isobath {
namespace {

using namespace isobath::testing;

class Bf16Rows : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { choose(GetParam()); }
  void TearDown() override { choose(0); }

 private:
  static void choose(int64_t set) {
    hwy::SetSupportedTargetsForTest(set);
    hwy::GetChosenTarget().DeInit();  // the next call chooses again
  }
};
INSTANTIATE_TEST_SUITE_P(OnEachTarget, Bf16Rows, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

constexpr int64_t kWidths[] = {1, 7, 16, 37, 64, 131};

// Rotating no heads copies: every kind of number, at every place of a vector.
TEST_P(Bf16Rows, VectorsRoundAsTheDefinition) {
  constexpr int64_t kCols = 131;
  Buffer x({int64_t(0x10000 * 5) / kCols, kCols}), table({1, 2}, 1);
  const uint32_t below[] = {0, 1, 0x7fff, 0x8000, 0x8001};
  for (int64_t i = 0; i < x.shape.numel(); i++) x[i] = std::bit_cast<float>(uint32_t(i / 5) << 16 | below[i % 5]);
  const List position(x.shape[0], 0);
  Bf16Buffer y(x.shape);
  rope_forward(y, x, position, table, 0);
  for (size_t i = 0; i < y.values.size(); i++)
    ASSERT_EQ(y.values[i].bits, to_stored<Bf16>(x.values[i]).bits) << std::bit_cast<uint32_t>(x.values[i]);
  Buffer wide(y.shape);
  widen(wide, y);
  expect_same_bits(wide, y.wide());
}

TEST_P(Bf16Rows, RmsNorm) {
  for (const int64_t D : kWidths) {
    const Buffer x = random_buffer({9, D}, 1), add = random_buffer({5, D}, 2), weight = random_buffer({D}, 3);
    const List index{0, 2, 3, 7, 8};
    const Bf16Buffer narrow(x);
    // fp32 in, bf16 kept: the norm of the rounded sum. bf16 in: the norm of the widened rows.
    for (const CStored rows : {CStored(x), CStored(narrow)}) {
      Buffer z({5, D}), y({5, D}), want({5, D}), rstd({5}), want_rstd({5}), again({5, D});
      Bf16Buffer kept({5, D});
      rmsnorm_forward(y, rstd, z, {rows, index, add}, weight, 1e-5f);
      rmsnorm_forward(y, rstd, kept, {rows, index, add}, weight, 1e-5f);
      expect_same_bits(kept.wide(), rounded(z), "saved");
      rmsnorm_forward(want, want_rstd, {}, {rounded(z), {}, {}}, weight, 1e-5f);
      expect_same_bits(y, want, "y");
      expect_same_bits(rstd, want_rstd, "rstd");
      rmsnorm_apply(again, kept, weight, rstd);
      expect_same_bits(again, y, "apply");

      const Buffer dy = random_buffer({5, D}, 4);
      Buffer dz({5, D}), want_dz({5, D}), dweight({D}, 1), want_dweight({D}, 1), partial({kGradChunks, D});
      rmsnorm_backward(dz, add_to(dweight), dy, kept, weight, rstd, partial);
      rmsnorm_backward(want_dz, add_to(want_dweight), dy, rounded(z), weight, rstd, partial);
      expect_same_bits(dz, want_dz, "dz");
      expect_same_bits(dweight, want_dweight, "dweight");
    }
  }
}

TEST_P(Bf16Rows, Swiglu) {
  for (const int64_t F : kWidths) {
    const Buffer uv = random_buffer({5, 2 * F}, 1, 3), dh = random_buffer({5, F}, 2);
    Bf16Buffer kept({5, 2 * F});
    Buffer h({5, F}), want({5, F}), same = rounded(uv);
    swiglu_forward(h, kept, uv);
    swiglu_forward(want, same, same);
    expect_same_bits(kept.wide(), rounded(uv), "kept");
    expect_same_bits(h, want, "h");
    Buffer duv({5, 2 * F}), want_duv({5, 2 * F}), d = dh, want_d = dh;
    swiglu_backward(duv, d, kept);
    swiglu_backward(want_duv, want_d, rounded(uv));
    expect_same_bits(duv, want_duv, "duv");
    expect_same_bits(d, h, "h again");
    Buffer other({5, 2 * F}), other_h({5, F});
    swiglu_forward(other_h, other, uv);  // kept in fp32, in another place
    expect_same_bits(other, uv, "fp32 kept");
  }
}

TEST_P(Bf16Rows, ResidualAddAndRouter) {
  for (const int64_t D : kWidths) {
    const Buffer x = random_buffer({9, D}, 1), a = random_buffer({5, D}, 2), m = random_buffer({5, D}, 3);
    const Buffer gate = random_buffer({5}, 4);
    const List index{0, 2, 3, 7, 8};
    Buffer exact({5, D}), added = x, want = x;
    residual_add_forward({}, exact, {}, {}, a, m);
    Bf16Buffer delta({5, D}), alone({5, D});
    residual_add_forward(added, delta, index, gate, a, m);
    residual_add_forward({}, alone, {}, {}, a, m);
    expect_same_bits(delta.wide(), rounded(exact), "delta");
    expect_same_bits(alone.wide(), rounded(exact), "delta without x");
    residual_add_forward(want, {}, index, gate, rounded(exact), {});
    expect_same_bits(added, want, "x gets what is kept");
    Buffer ddelta({5, D}), dgate({5}), want_ddelta({5, D}), want_dgate({5});
    residual_add_backward(ddelta, dgate, x, index, gate, delta);
    residual_add_backward(want_ddelta, want_dgate, x, index, gate, rounded(exact));
    expect_same_bits(ddelta, want_ddelta, "ddelta");
    expect_same_bits(dgate, want_dgate, "dgate");

    Buffer dw({D}, 1), db({1}, 1), want_dw({D}, 1), want_db({1}, 1), partial({kGradChunks, D});
    router_backward_weight(add_to(dw), add_to(db), gate, Bf16Buffer(x), index, partial);
    router_backward_weight(add_to(want_dw), add_to(want_db), gate, rounded(x), index, partial);
    expect_same_bits(dw, want_dw, "router's dw");
  }
}

TEST_P(Bf16Rows, Rope) {
  for (const int64_t K : {2, 6, 30, 64, 66}) {
    const Buffer x = random_buffer({5, 3 * K + 19}, 1);
    Buffer table({40, K}), want = x;
    rope_table(table, 10000);
    const List position{0, 3, 4, 17, 39};
    Bf16Buffer y(x.shape);
    rope_forward(want, want, position, table, 3);
    rope_forward(y, x, position, table, 3);
    expect_same_bits(y.wide(), rounded(want));
    Buffer copy(x.shape);
    rope_forward(copy, x, position, table, 3);
    expect_same_bits(copy, want, "fp32, not in place");
  }
}

TEST_P(Bf16Rows, Attention) {
  const std::vector<int32_t> begin{0, 1, 4, 4, 69, 199};
  const CI32 segments{begin.data(), {int64_t(begin.size())}};
  for (const Heads heads : {Heads{1, 1, 1}, Heads{3, 3, 8}, Heads{4, 2, 17}, Heads{2, 1, 64}, Heads{5, 1, 67}}) {
    const Bf16Buffer qkv(random_buffer({199, heads.qkv_cols()}, 1));
    const Buffer wide = qkv.wide(), d_o = random_buffer({199, heads.q_cols()}, 2);
    Bf16Buffer o({199, heads.q_cols()});
    Buffer want(o.shape), lse({199, heads.H}), want_lse({199, heads.H});
    attention_forward(o, lse, qkv, segments, heads);
    attention_forward(want, want_lse, wide, segments, heads);
    expect_same_bits(o.wide(), rounded(want), "o");
    expect_same_bits(lse, want_lse, "lse");
    Buffer dqkv(wide.shape), want_dqkv(wide.shape);
    attention_backward(dqkv, d_o, qkv, o, lse, segments, heads);
    attention_backward(want_dqkv, d_o, wide, o.wide(), lse, segments, heads);
    expect_same_bits(dqkv, want_dqkv, "dqkv");
  }
}

TEST_P(Bf16Rows, BitsDoNotDependOnThreads) {
  const Buffer uv = random_buffer({301, 2 * 83}, 1), x = random_buffer({301, 83}, 2), weight = random_buffer({83}, 3);
  const Heads heads{2, 1, 20};
  const Bf16Buffer qkv(random_buffer({301, heads.qkv_cols()}, 4));
  const List begin{0, 90, 301};
  const auto run = [&] {
    Bf16Buffer kept(uv.shape), saved(x.shape), o({301, heads.q_cols()});
    Buffer h({301, 83}), y({301, 83}), rstd({301}), lse({301, heads.H});
    swiglu_forward(h, kept, uv);
    rmsnorm_forward(y, rstd, saved, {x, {}, {}}, weight, 1e-5f);
    attention_forward(o, lse, qkv, begin, heads);
    return std::array<Buffer, 5>{kept.wide(), saved.wide(), o.wide(), h, y};
  };
  const auto one = with_threads(1, run);
  for (const int threads : {2, 5}) {
    const auto more = with_threads(threads, run);
    for (size_t i = 0; i < one.size(); i++) expect_same_bits(more[i], one[i]);
  }
}

TEST(Bf16Checks, AttentionRefusesMixedFormatsAndWidenAnotherShape) {
  const Heads heads{1, 1, 4};
  const Buffer qkv = random_buffer({3, 12}, 1), d_o = random_buffer({3, 4}, 2);
  Bf16Buffer o({3, 4});
  Buffer lse({3, 1}), dqkv({3, 12}), wide({4, 3});
  const List begin{0, 3};
  EXPECT_THROW(attention_forward(o, lse, qkv, begin, heads), Error);
  EXPECT_THROW(attention_backward(dqkv, d_o, qkv, o, lse, begin, heads), Error);
  EXPECT_THROW(widen(wide, o), Error);
}

}  // namespace
}  // namespace isobath
