#include "ops/rmsnorm.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/parallel.h"
#include "reference/gradient.h"
#include "reference/rmsnorm.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;
constexpr float kEps = 1e-5f;

// S of N rows of x, with or without a second summand.
struct Case {
  int64_t N, S, D;
  bool with_add;
  Buffer x, add, weight;
  List index;
  Case(int64_t n, int64_t s, int64_t d, bool a)
      : N(n),
        S(s),
        D(d),
        with_add(a),
        x(random_buffer({n, d}, 1)),
        add(random_buffer({s, d}, 2)),
        weight(random_buffer({d}, 3)),
        index(random_rows(s, n, 4)) {}
  RmsNormIn in() const { return {x, index, with_add ? CF32(add) : CF32()}; }
  Buffer z() const {
    Buffer rows({S, D});
    for (int64_t s = 0; s < S; s++)
      for (int64_t d = 0; d < D; d++) rows[s * D + d] = x[index[s] * D + d] + (with_add ? add[s * D + d] : 0);
    return rows;
  }
};

struct Forward {
  Buffer y, rstd, saved;
};
Forward forward(const Case& c, bool save = true) {
  Forward f{Buffer({c.S, c.D}), Buffer({c.S}), Buffer({c.S, c.D})};
  rmsnorm_forward(f.y, f.rstd, save ? Stored(f.saved) : Stored(), c.in(), c.weight, kEps);
  return f;
}

struct Backward {
  Buffer dz, dweight;
};
Backward backward(const Case& c, const Forward& f, const Buffer& dy) {
  Backward b{Buffer({c.S, c.D}), Buffer({c.D}, 10)};
  Buffer partial({kGradChunks, c.D});
  rmsnorm_backward(b.dz, add_to(b.dweight), dy, f.saved, c.weight, f.rstd, partial);
  return b;
}

const Case kCases[] = {{1, 1, 1, false}, {5, 3, 7, true}, {9, 4, 64, false}, {70, 67, 83, true}, {300, 260, 131, true}};

TEST(RmsNorm, ForwardMatchesTheFormula) {
  for (const Case& c : kCases) {
    const Forward f = forward(c);
    const auto weight = to_double(c.weight);
    expect_close(f.y.values, reference::rmsnorm(to_double(c.z()), weight, double(kEps)), 4 * max_abs(c.weight), 1, "y");
    expect_same_bits(f.saved, c.z(), "saved");
    expect_same_bits(f.y, forward(c, false).y, "without saving");
  }
}

TEST(RmsNorm, ApplyHasTheBitsOfForward) {
  for (const Case& c : kCases) {
    const Forward f = forward(c);
    Buffer y({c.S, c.D});
    rmsnorm_apply(y, f.saved, c.weight, f.rstd);
    expect_same_bits(y, f.y);
  }
}

// In any order, some twice, some not at all.
TEST(RmsNorm, ApplyGathersListedRows) {
  const Case c(40, 40, 83, false);
  const Forward f = forward(c);
  const List index{39, 0, 17, 17};
  Buffer y({4, c.D});
  rmsnorm_apply(y, f.saved, c.weight, f.rstd, index);
  for (int64_t j = 0; j < 4; j++) expect_same_bits(y.view().row(j), f.y.view().row(index[j]), c.D);
  EXPECT_THROW(rmsnorm_apply(y, f.saved, c.weight, f.rstd, List{0, 1, 2, 40}), Error);
}

TEST(RmsNorm, ARowsBitsDependOnThatRowAlone) {
  const Case c(40, 40, 83, false);
  const Forward all = forward(c);
  for (const int32_t n : {0, 17, 39}) {
    Buffer y({1, c.D}), rstd({1});
    rmsnorm_forward(y, rstd, {}, {c.x, List{n}, {}}, c.weight, kEps);
    expect_same_bits(y.values.data(), all.y.values.data() + n * c.D, c.D);
  }
}

TEST(RmsNorm, BackwardMatchesTheFormula) {
  for (const Case& c : kCases) {
    if (c.S * c.D > 10000) continue;  // a complex step per element
    const Buffer dy = random_buffer({c.S, c.D}, 5);
    const Forward f = forward(c);
    const Backward got = backward(c, f, dy);
    const auto loss = [&](const auto& z, const auto& weight) {
      const auto y = reference::rmsnorm(z, weight, double(kEps));
      reference::Complex sum = 0;
      for (size_t i = 0; i < y.size(); i++) sum += y[i] * double(dy[int64_t(i)]);
      return sum;
    };
    const auto z = to_double(c.z()), weight = to_double(c.weight);
    const double D = double(c.D);
    const reference::Vec<reference::Complex> complex_z(z.begin(), z.end()),
        complex_weight(weight.begin(), weight.end());
    auto dweight = reference::complex_step(weight, [&](const auto& w) { return loss(complex_z, w); });
    for (double& v : dweight) v += 10;
    expect_close(got.dweight.values, dweight, 10 + 4 * max_abs(dy), double(c.S), "dweight");
    // Row by row: a row's gradient is its own.
    for (int64_t s = 0; s < c.S; s++) {
      const std::vector<double> row(z.begin() + s * c.D, z.begin() + (s + 1) * c.D);
      const auto want = reference::complex_step(row, [&](const auto& r) {
        const auto y = reference::rmsnorm(r, complex_weight, double(kEps));
        reference::Complex sum = 0;
        for (int64_t d = 0; d < c.D; d++) sum += y[size_t(d)] * double(dy[s * c.D + d]);
        return sum;
      });
      const std::vector<float> mine(got.dz.values.begin() + s * c.D, got.dz.values.begin() + (s + 1) * c.D);
      expect_close(mine, want, 4 * max_abs(dy) * max_abs(c.weight) * double(f.rstd[s]), D, "dz");
    }
  }
}

TEST(RmsNorm, BackwardMayOverwriteDy) {
  const Case c(70, 67, 83, true);
  const Forward f = forward(c);
  Buffer dy = random_buffer({c.S, c.D}, 5), dweight({c.D}, 10), partial({kGradChunks, c.D});
  const Backward want = backward(c, f, dy);
  rmsnorm_backward(dy, add_to(dweight), dy, f.saved, c.weight, f.rstd, partial);
  expect_same_bits(dy, want.dz);
  expect_same_bits(dweight, want.dweight);
}

TEST(RmsNorm, HasTheSameBitsForAnyNumberOfThreads) {
  const Case c(400, 301, 83, true);
  const Buffer dy = random_buffer({c.S, c.D}, 5);
  const Forward one = with_threads(1, [&] { return forward(c); });
  const Backward one_back = with_threads(1, [&] { return backward(c, one, dy); });
  for (const int threads : {2, 5}) {
    const Forward f = with_threads(threads, [&] { return forward(c); });
    expect_same_bits(f.y, one.y, "y");
    expect_same_bits(f.rstd, one.rstd, "rstd");
    const Backward b = with_threads(threads, [&] { return backward(c, one, dy); });
    expect_same_bits(b.dz, one_back.dz, "dz");
    expect_same_bits(b.dweight, one_back.dweight, "dweight");
  }
}

TEST(RmsNorm, NoRowsDoNothing) {
  const Case c(4, 0, 3, false);
  const Backward b = backward(c, forward(c), Buffer({0, 3}));
  expect_same_bits(b.dweight, Buffer({3}, 10));
}

TEST(RmsNorm, RefusesWrongShapesAndRows) {
  const Case c(5, 3, 7, false);
  Buffer y({3, 7}), rstd({3}), partial({kGradChunks, 7}), dweight({7});
  EXPECT_THROW(rmsnorm_forward(y, rstd, {}, {c.x, List{0, 1, 5}, {}}, c.weight, kEps), Error);
  EXPECT_THROW(rmsnorm_forward(y, rstd, {}, {c.x, List{0, 1}, {}}, c.weight, kEps), Error);
  EXPECT_THROW(rmsnorm_forward(y, rstd, Buffer({2, 7}), c.in(), c.weight, kEps), Error);
  EXPECT_THROW(rmsnorm_backward(y, add_to(dweight), y, c.x, c.weight, rstd, partial), Error);
}

}  // namespace
}  // namespace isobath
