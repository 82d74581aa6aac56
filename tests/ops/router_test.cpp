#include "ops/router.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/work.h"
#include "reference/gradient.h"
#include "reference/router.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

Buffer score(const Buffer& x, const Buffer& w, CF32 b = {}) {
  Buffer r({x.shape[0]});
  router_score(r, x, w, b);
  return r;
}

TEST(Router, ScoreMatchesTheFormula) {
  for (const auto& [N, D] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {5, 64}, {67, 401}}) {
    const Buffer x = random_buffer({N, D}, 1), w = random_buffer({D}, 2), b = random_buffer({1}, 3);
    const double terms = max_abs(x) * max_abs(w);
    const auto xs = to_double(x), ws = to_double(w);
    expect_close(score(x, w).values, reference::router_score(xs, ws, 0.0), terms, double(D));
    expect_close(score(x, w, b).values, reference::router_score(xs, ws, double(b[0])), terms, double(D));
  }
}

TEST(Router, ARowsScoreDependsOnThatRowAlone) {
  const Buffer x = random_buffer({301, 83}, 1), w = random_buffer({83}, 2);
  const Buffer one = with_threads(1, [&] { return score(x, w); });
  for (const int threads : {2, 5}) expect_same_bits(with_threads(threads, [&] { return score(x, w); }), one);
  for (const int64_t n : {0, 150, 300}) {
    Buffer r({1});
    router_score(r, x.view().slice(n, 1), w, {});
    EXPECT_EQ(r[0], one[n]);
  }
}

TEST(Router, CountsItsMultiplyAdds) {
  const Buffer x = random_buffer({5, 7}, 1), w = random_buffer({7}, 2);
  Buffer dw({7}, 0), partial({kGradChunks, 7});
  const int64_t before = executed_multiply_adds;
  score(x, w);
  EXPECT_EQ(executed_multiply_adds - before, 35);
  router_backward_weight(add_to(dw), add_to({}), random_buffer({2}, 3), x, List{1, 4}, partial);
  EXPECT_EQ(executed_multiply_adds - before, 35 + 14);
}

struct Weights {
  Buffer dw, db;
};
Weights backward(const Buffer& dr, const Buffer& x, CI32 index) {
  Weights g{Buffer({x.shape[1]}, 10), Buffer({1}, 20)};
  Buffer partial({kGradChunks, x.shape[1]});
  router_backward_weight(add_to(g.dw), add_to(g.db), dr, x, index, partial);
  return g;
}

TEST(Router, WeightGradientMatchesTheFormula) {
  for (const auto& [N, S, D] : {std::array<int64_t, 3>{1, 1, 1}, {9, 3, 7}, {70, 67, 65}}) {
    const Buffer x = random_buffer({N, D}, 1), w = random_buffer({D}, 2), dr = random_buffer({S}, 3);
    const List index = random_rows(S, N, 4);
    const auto xs = to_double(x);
    auto parameters = to_double(w);
    parameters.push_back(0.5);  // the bias
    auto want = reference::complex_step(parameters, [&, S = S](reference::Vec<reference::Complex> p) {
      const reference::Complex b = p.back();
      p.pop_back();
      const auto r = reference::router_score(reference::Vec<reference::Complex>(xs.begin(), xs.end()), p, b);
      reference::Complex loss = 0;
      for (int64_t s = 0; s < S; s++) loss += r[size_t(index[s])] * double(dr[s]);
      return loss;
    });
    const double db = want.back() + 20;
    want.pop_back();
    for (double& v : want) v += 10;
    const Weights got = backward(dr, x, index);
    expect_close(got.dw.values, want, 10 + max_abs(x) * max_abs(dr), double(S), "dw");
    expect_close(got.db.values, std::vector<double>{db}, 20 + max_abs(dr), double(S), "db");
  }
}

TEST(Router, WeightGradientHasTheSameBitsForAnyNumberOfThreads) {
  const Buffer x = random_buffer({600, 83}, 1), dr = random_buffer({501}, 3);
  const List index = random_rows(501, 600, 4);
  const Weights one = with_threads(1, [&] { return backward(dr, x, index); });
  for (const int threads : {2, 5}) {
    const Weights more = with_threads(threads, [&] { return backward(dr, x, index); });
    expect_same_bits(more.dw, one.dw);
    expect_same_bits(more.db, one.db);
  }
}

// sum_n dr[n] r[n], so that its gradients are those that backward gives for dr.
template <class T>
T weighted_normed(const std::vector<T>& x, const std::vector<T>& w, T b, const std::vector<double>& dr) {
  T sum = 0;
  const auto r = reference::router_score_normed(x, w, b, 1e-3);
  for (size_t n = 0; n < r.size(); n++) sum += dr[n] * r[n];
  return sum;
}

TEST(RouterNormed, ForwardAndBackwardMatchTheFormula) {
  for (const auto& [N, D] : {std::pair<int64_t, int64_t>{1, 1}, {3, 7}, {23, 65}}) {
    const Buffer x = random_buffer({N, D}, 1, 3), w = random_buffer({D}, 2), b = random_buffer({1}, 3);
    const Buffer dr = random_buffer({N}, 4);
    Buffer r({N}), rstd({N}), dx({N, D}, 2), dw({D}, 10), db({1}, 20), partial({kGradChunks, D});
    router_score_normed(r, rstd, x, w, b, 1e-3f);
    const auto xs = to_double(x), ws = to_double(w), drs = to_double(dr);
    expect_close(r.values, reference::router_score_normed(xs, ws, double(b[0]), 1e-3), 3 * max_abs(w), double(D));

    using reference::Complex;
    const std::vector<Complex> xc(xs.begin(), xs.end()), wc(ws.begin(), ws.end());
    auto want_dx =
        reference::complex_step(xs, [&](const auto& z) { return weighted_normed(z, wc, Complex(b[0]), drs); });
    auto want_dw =
        reference::complex_step(ws, [&](const auto& z) { return weighted_normed(xc, z, Complex(b[0]), drs); });
    for (double& v : want_dx) v += 2;
    for (double& v : want_dw) v += 10;
    router_backward_input_normed(dx, dr, x, w, b, r, rstd);
    expect_close(dx.values, want_dx, 2 + 9 * max_abs(dr) * max_abs(w) * max_abs(rstd), double(D));
    router_backward_weight(add_to(dw), add_to(db), dr, x, {}, partial, {rstd, {}});
    expect_close(dw.values, want_dw, 10 + 3 * max_abs(dr), double(N));
    double sum = 20;
    for (const double v : drs) sum += v;
    EXPECT_NEAR(db[0], sum, 1e-5);
  }
}

// As in a routed block: the listed rows were saved together, their scale is among those of all rows.
TEST(RouterNormed, WeightGradientOfListedRows) {
  const Buffer x = random_buffer({40, 9}, 1), w = random_buffer({9}, 2), dr = random_buffer({13}, 3);
  const List index = random_rows(13, 40, 5);
  Buffer r({40}), rstd({40}), saved({13, 9}), partial({kGradChunks, 9});
  router_score_normed(r, rstd, x, w, {}, 1e-5f);
  for (int64_t s = 0; s < 13; s++) std::copy_n(x.view().row(index[s]), 9, saved.view().row(s));
  Buffer of_all({9}, 0), of_saved({9}, 0);
  router_backward_weight(add_to(of_all), add_to({}), dr, x, index, partial, {rstd, index});
  router_backward_weight(add_to(of_saved), add_to({}), dr, saved, {}, partial, {rstd, index});
  expect_same_bits(of_all, of_saved);
}

TEST(RouterNormed, ARowsScoreDependsOnThatRowAlone) {
  const Buffer x = random_buffer({301, 83}, 1), w = random_buffer({83}, 2);
  const auto score_all = [&] {
    Buffer r({301}), rstd({301});
    router_score_normed(r, rstd, x, w, {}, 1e-5f);
    return r;
  };
  const Buffer one = with_threads(1, score_all);
  expect_same_bits(with_threads(2, score_all), one);
  Buffer r({1}), rstd({1});
  router_score_normed(r, rstd, x.view().slice(150, 1), w, {}, 1e-5f);
  EXPECT_EQ(r[0], one[150]);
}

TEST(RestoreRows, WritesTheListedRows) {
  Buffer x = random_buffer({5, 3}, 1);
  const Buffer before = x, saved = random_buffer({2, 3}, 2);
  restore_rows(x, List{1, 4}, saved);
  for (int64_t i = 0; i < 3; i++) {
    EXPECT_EQ(x[3 + i], saved[i]);
    EXPECT_EQ(x[12 + i], saved[3 + i]);
    EXPECT_EQ(x[i], before[i]);
  }
  EXPECT_THROW(restore_rows(x, List{4, 1}, saved), Error);
}

TEST(Router, AnIndexLeftOutMeansAllRows) {
  const Buffer x = random_buffer({9, 7}, 1), dr = random_buffer({9}, 3);
  const List all = random_rows(9, 9, 4);
  expect_same_bits(backward(dr, x, {}).dw, backward(dr, x, all).dw);
}

TEST(Router, NoRowsLeaveTheAccumulators) {
  const Buffer x = random_buffer({4, 3}, 1);
  const Weights g = backward(Buffer({0}), x, List(0));
  expect_same_bits(g.dw, Buffer({3}, 10));
  expect_same_bits(g.db, Buffer({1}, 20));
  Buffer none({0});
  router_score(none, Buffer({0, 3}), Buffer({3}, 1), {});
  gate_forward(none, Buffer({4}, 1), List(0), Gate::kTanh);
  gate_backward(none, none, Buffer({4}, 1), List(0), Gate::kTanh);
}

TEST(Gate, ForwardAndBackwardMatchTheFormula) {
  Buffer r({401});
  for (int64_t i = 0; i < 401; i++) r[i] = float(i - 200) * 0.1f;  // -20 to 20: into both tails
  const List index = random_rows(350, 401, 1);
  const Buffer dg = random_buffer({350}, 2);
  for (const Gate kind : {Gate::kRaw, Gate::kSigmoid, Gate::kTanh}) {
    Buffer g({350}), dr({350});
    gate_forward(g, r, index, kind);
    gate_backward(dr, dg, r, index, kind);
    for (int64_t s = 0; s < 350; s++) {
      const double score = double(r[index[s]]), want = reference::gate(score, kind);
      ASSERT_NEAR(g[s], want, 3e-7 * std::abs(want)) << "r = " << score;
      const double step = 1e-30;
      const double slope = reference::gate(reference::Complex(score, step), kind).imag() / step;
      // The reference itself loses tanh's slope in the tails (1 - tanh^2): an absolute floor.
      ASSERT_NEAR(dr[s], double(dg[s]) * slope, 6e-7 * std::abs(double(dg[s]) * slope) + 1e-15) << "r = " << score;
    }
  }
}

TEST(Gate, IsFiniteForHugeScores) {
  const Buffer ones({4}, 1);
  Buffer r({4}), g({4}), dr({4});
  const float scores[] = {1e30f, -1e30f, 200, -200};
  std::copy(scores, scores + 4, r.values.begin());
  for (const Gate kind : {Gate::kSigmoid, Gate::kTanh}) {
    gate_forward(g, r, {}, kind);
    gate_backward(dr, ones, r, {}, kind);
    for (int64_t i = 0; i < 4; i++) {
      EXPECT_EQ(g[i], i % 2 == 0 ? 1 : (kind == Gate::kTanh ? -1 : 0));
      EXPECT_EQ(dr[i], 0);
    }
  }
}

TEST(Gate, HasTheSameBitsForAnyNumberOfThreads) {
  const Buffer r = random_buffer({5001}, 1);
  for (const Gate kind : {Gate::kRaw, Gate::kSigmoid, Gate::kTanh}) {
    const auto run = [&] {
      Buffer g({5001});
      gate_forward(g, r, {}, kind);
      return g;
    };
    expect_same_bits(with_threads(1, run), with_threads(2, run));
  }
}

TEST(Router, RefusesWrongShapesAndRows) {
  Buffer r({2}), x({2, 3}, 0), w({3}, 0), partial({kGradChunks, 3});
  EXPECT_THROW(router_score(r, x, Buffer({4}), {}), Error);
  EXPECT_THROW(router_score(r, x, w, Buffer({2})), Error);
  EXPECT_THROW(router_backward_weight(add_to(w), add_to({}), r, x, List{0, 2}, partial), Error);
  EXPECT_THROW(router_backward_weight(add_to(w), add_to({}), r, x, {}, Buffer({1, 3})), Error);
  EXPECT_THROW(gate_forward(r, r, List{0, 2}, Gate::kRaw), Error);
}

}  // namespace
}  // namespace isobath
