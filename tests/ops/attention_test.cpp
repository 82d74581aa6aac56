// The targets that the kernels are built for.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include "ops/attention.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <numeric>

#include "base/count.h"
#include "base/error.h"
#include "base/parallel.h"
#include "reference/attention.h"
#include "reference/gradient.h"
#include "support/compare.h"

namespace isobath {
namespace {

using namespace isobath::testing;

// Every case runs on every instruction set that the machine and the library have, with one thread unless it says else.
class Attention : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(GetParam());
    hwy::GetChosenTarget().Update(GetParam());
    set_thread_count(1);
  }
  void TearDown() override {
    set_thread_count(threads_);
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }

 private:
  int threads_ = thread_count();
};

INSTANTIATE_TEST_SUITE_P(OnEachTarget, Attention, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

const std::vector<int64_t> kLengths{1, 2, 0, 63, 64, 65, 0, 130};

std::vector<int32_t> begins(const std::vector<int64_t>& lengths) {
  std::vector<int32_t> begin{0};
  for (const int64_t n : lengths) begin.push_back(begin.back() + int32_t(n));
  return begin;
}

CI32 view_of(const std::vector<int32_t>& v) { return {v.data(), {int64_t(v.size())}}; }

struct Output {
  Buffer o, lse;
};

Output forward(const Buffer& qkv, const std::vector<int32_t>& begin, const Heads& heads) {
  Output out{Buffer({qkv.view().rows(), heads.q_cols()}), Buffer({qkv.view().rows(), heads.H})};
  attention_forward(out.o, out.lse, qkv, view_of(begin), heads);
  return out;
}

Buffer backward(const Buffer& d_o, const Buffer& qkv, const Output& out, const std::vector<int32_t>& begin,
                const Heads& heads) {
  Buffer dqkv(qkv.shape);
  attention_backward(dqkv, d_o, qkv, out.o, out.lse, view_of(begin), heads);
  return dqkv;
}

Buffer random_qkv(int64_t rows, const Heads& heads, uint64_t seed = 1, float scale = 1) {
  return random_buffer({rows, heads.qkv_cols()}, seed, scale);
}

// Keys and values of a list's rows as a cache holds them.
struct Cache {
  Buffer key, value;
  Cache(CF32 qkv, const Heads& heads) : key({qkv.rows(), heads.kv_cols()}), value({qkv.rows(), heads.kv_cols()}) {
    for (int64_t row = 0; row < qkv.rows(); row++)
      for (int64_t c = 0; c < heads.kv_cols(); c++) {
        key[row * heads.kv_cols() + c] = qkv.row(row)[heads.q_cols() + c];
        value[row * heads.kv_cols() + c] = qkv.row(row)[heads.q_cols() + heads.kv_cols() + c];
      }
  }
};

// A rounding of the scores, which are sums of K terms of this size, changes a weight by as much of itself.
double score_terms(const Buffer& qkv, const Heads& heads) {
  return max_abs(qkv) * max_abs(qkv) / std::sqrt(double(heads.K));
}

void expect_forward_close(const Output& got, const Buffer& qkv, const std::vector<int32_t>& begin, const Heads& heads) {
  const auto want = reference::attention(to_double(qkv), begin, heads.H, heads.G, heads.K);
  const double terms = 1 + score_terms(qkv, heads), count = double(heads.K);
  expect_close(got.o.values, want.o, max_abs(qkv) * terms, count, "o");
  expect_close(got.lse.values, want.lse, terms, count, "lse");
}

TEST_P(Attention, ForwardIsTheFormula) {
  const auto begin = begins(kLengths);
  for (const Heads heads : {Heads{1, 1, 1}, Heads{2, 1, 5}, Heads{3, 3, 8}, Heads{4, 2, 17}, Heads{6, 2, 32},
                            Heads{2, 2, 64}, Heads{5, 1, 67}, Heads{2, 1, 128}, Heads{1, 1, 256}}) {
    SCOPED_TRACE(heads.K);
    const Buffer qkv = random_qkv(begin.back(), heads);
    expect_forward_close(forward(qkv, begin, heads), qkv, begin, heads);
  }
}

TEST_P(Attention, BackwardIsTheGradientOfTheFormula) {
  const auto begin = begins({3, 0, 1, 7});
  for (const Heads heads : {Heads{1, 1, 1}, Heads{2, 2, 4}, Heads{4, 2, 3}, Heads{3, 1, 8}}) {
    SCOPED_TRACE(heads.K);
    const Buffer qkv = random_qkv(begin.back(), heads), d_o = random_buffer({begin.back(), heads.q_cols()}, 2);
    const auto want = reference::complex_step(to_double(qkv), [&](const std::vector<reference::Complex>& z) {
      const auto o = reference::attention(z, begin, heads.H, heads.G, heads.K).o;
      reference::Complex loss = 0;
      for (size_t i = 0; i < o.size(); i++) loss += o[i] * double(d_o.values[i]);
      return loss;
    });
    const double size = max_abs(qkv), score = score_terms(qkv, heads);
    const double terms = max_abs(d_o) * (1 + score) * std::max(1.0, size * size / std::sqrt(double(heads.K)));
    expect_close(backward(d_o, qkv, forward(qkv, begin, heads), begin, heads).values, want, terms,
                 double(heads.K * heads.H / heads.G));
  }
}

// dO is not zero in one row only: then the gradient by the formula is cheap enough for lists of several blocks.
TEST_P(Attention, BackwardAcrossBlocksIsTheGradientOfTheFormula) {
  const Heads heads{4, 2, 3};
  const auto begin = begins({2, 150});
  const Buffer qkv = random_qkv(begin.back(), heads);
  const Output out = forward(qkv, begin, heads);
  for (const int64_t row : {2, 65, 66, 130, 151}) {
    SCOPED_TRACE(row);
    Buffer d_o({begin.back(), heads.q_cols()}, 0.0f);
    for (int64_t c = 0; c < heads.q_cols(); c++) d_o[row * heads.q_cols() + c] = float(c % 3) - 1.5f;
    const Buffer got = backward(d_o, qkv, out, begin, heads);
    const auto loss = [&](std::vector<reference::Complex> z) {
      z.erase(z.begin(), z.begin() + 2 * heads.qkv_cols());
      z.resize(size_t((row - 1) * heads.qkv_cols()));
      const auto o = reference::attention(z, {0, int32_t(row - 1)}, heads.H, heads.G, heads.K).o;
      reference::Complex sum = 0;
      for (int64_t c = 0; c < heads.q_cols(); c++)
        sum += o[size_t((row - 2) * heads.q_cols() + c)] * double(d_o[row * heads.q_cols() + c]);
      return sum;
    };
    for (const int64_t seen :
         {int64_t(2), row / 2 + 1, row}) {  // gradients of three rows, one column of q, k and v each
      for (const int64_t col : {int64_t(4), heads.q_cols() + 4, heads.q_cols() + heads.kv_cols() + 1}) {
        const int64_t i = seen * heads.qkv_cols() + col;
        const auto values = to_double(qkv);
        std::vector<reference::Complex> z(values.begin(), values.end());
        z[size_t(i)] += reference::Complex(0, 1e-30);
        const double terms = 2 * (1 + score_terms(qkv, heads)) * score_terms(qkv, heads);
        ASSERT_NEAR(got[i], loss(z).imag() / 1e-30, 1e-6 * terms) << "row " << seen << " column " << col;
      }
    }
  }
}

// The bits of every row, alone in its segment's prefix, are those it has in any list.
TEST_P(Attention, BitsDoNotDependOnNeighboursOrderOrThreads) {
  for (const Heads heads : {Heads{2, 2, 64}, Heads{6, 2, 20}}) {
    const auto begin = begins(kLengths);
    const Buffer qkv = random_qkv(begin.back(), heads), d_o = random_buffer({begin.back(), heads.q_cols()}, 2);
    set_thread_count(1);
    const Output one = forward(qkv, begin, heads);
    const Buffer gradient = backward(d_o, qkv, one, begin, heads);
    set_thread_count(2);
    const Output two = forward(qkv, begin, heads);
    expect_same_bits(one.o, two.o);
    expect_same_bits(one.lse, two.lse);
    expect_same_bits(gradient, backward(d_o, qkv, one, begin, heads));

    std::vector<size_t> order(kLengths.size());
    std::iota(order.rbegin(), order.rend(), size_t(0));
    std::vector<int64_t> lengths;
    Buffer moved(qkv.shape);
    int64_t at = 0;
    for (const size_t i : order) {
      lengths.push_back(kLengths[i]);
      std::copy_n(qkv.view().row(begin[i]), kLengths[i] * heads.qkv_cols(), moved.view().row(at));
      at += kLengths[i];
    }
    const Output other = forward(moved, begins(lengths), heads);
    at = 0;
    for (const size_t i : order) {
      expect_same_bits(other.o.view().row(at), one.o.view().row(begin[i]), kLengths[i] * heads.q_cols(), "o");
      expect_same_bits(other.lse.view().row(at), one.lse.view().row(begin[i]), kLengths[i] * heads.H, "lse");
      at += kLengths[i];
    }
  }
}

TEST_P(Attention, PrefixHasTheBitsOfTheWhole) {
  const Heads heads{3, 1, 24};
  const Buffer qkv = random_qkv(200, heads);
  const Output whole = forward(qkv, {0, 200}, heads);
  for (const int32_t n : {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 199}) {
    Buffer prefix({n, heads.qkv_cols()});
    std::copy_n(qkv.values.begin(), prefix.values.size(), prefix.values.begin());
    const Output part = forward(prefix, {0, n}, heads);
    expect_same_bits(part.o.values.data(), whole.o.values.data(), n * heads.q_cols(), "o");
    expect_same_bits(part.lse.values.data(), whole.lse.values.data(), n * heads.H, "lse");
  }
}

TEST_P(Attention, CachedInChunksHasTheBitsOfTheWhole) {
  for (const Heads heads :
       {Heads{1, 1, 64}, Heads{4, 2, 32}, Heads{20, 20, 16}, Heads{5, 1, 13}, Heads{9, 3, 7}, Heads{2, 1, 128}}) {
    const int64_t n = 210;
    const Buffer qkv = random_qkv(n, heads);
    const Cache cache(qkv, heads);
    const Output whole = forward(qkv, {0, int32_t(n)}, heads);
    for (const int64_t chunk : {1, 3, 64, 65, 129, 210}) {
      Buffer o({n, heads.q_cols()});
      for (int64_t row = 0; row < n; row += chunk) {
        const int64_t count = std::min(chunk, n - row);
        const CachedSegment segment{row, count, cache.key.values.data(), cache.value.values.data(), row + count};
        attention_cached(o, qkv, {&segment, 1}, heads);
      }
      expect_same_bits(o, whole.o);
    }
  }
}

TEST_P(Attention, CachedBatchHasTheBitsOfEachAlone) {
  const Heads heads{4, 2, 32};
  const std::vector<int64_t> keys{130, 1, 64, 0, 77, 65, 200, 2}, queries{1, 1, 3, 0, 70, 1, 2, 1};
  std::vector<Buffer> lists;
  std::vector<Cache> caches;
  for (size_t i = 0; i < keys.size(); i++) {
    lists.push_back(random_qkv(keys[i], heads, 10 + i));
    caches.emplace_back(lists.back(), heads);
  }
  const int64_t rows = std::accumulate(queries.begin(), queries.end(), int64_t(0));
  Buffer qkv({rows, heads.qkv_cols()}), want({rows, heads.q_cols()});
  std::vector<CachedSegment> segments;
  int64_t at = 0;
  for (size_t i = 0; i < keys.size(); i++) {
    const int64_t first = keys[i] - queries[i];
    const Output alone = forward(lists[i], {0, int32_t(keys[i])}, heads);
    std::copy_n(lists[i].view().row(first), queries[i] * heads.qkv_cols(), qkv.view().row(at));
    std::copy_n(alone.o.view().row(first), queries[i] * heads.q_cols(), want.view().row(at));
    segments.push_back({at, queries[i], caches[i].key.values.data(), caches[i].value.values.data(), keys[i]});
    at += queries[i];
  }
  for (const int t : {1, 2}) {
    set_thread_count(t);
    Buffer o({rows, heads.q_cols()});
    attention_cached(o, qkv, segments, heads);
    expect_same_bits(o, want);
    std::reverse(segments.begin(), segments.end());
  }
}

TEST_P(Attention, CachedWritesOnlyItsOwnRows) {
  const Heads heads{2, 1, 8};
  const Buffer qkv = random_qkv(3, heads);
  const Cache cache(qkv, heads);
  Buffer o({3, heads.q_cols()}, 7.0f);
  const CachedSegment segment{1, 1, cache.key.values.data(), cache.value.values.data(), 2};
  attention_cached(o, qkv, {&segment, 1}, heads);
  for (int64_t c = 0; c < heads.q_cols(); c++) {
    EXPECT_EQ(o[c], 7.0f);
    EXPECT_NE(o[heads.q_cols() + c], 7.0f);
    EXPECT_EQ(o[2 * heads.q_cols() + c], 7.0f);
  }
}

TEST_P(Attention, LaterRowsContributeNothing) {
  const Heads heads{2, 2, 16};
  Buffer qkv = random_qkv(100, heads);
  const Output before = forward(qkv, {0, 100}, heads);
  for (int64_t i = 41 * heads.qkv_cols(); i < qkv.shape.numel(); i++) qkv[i] = 1e4f * float(i % 5 - 2);
  const Output after = forward(qkv, {0, 100}, heads);
  expect_same_bits(before.o.values.data(), after.o.values.data(), 41 * heads.q_cols());
}

TEST_P(Attention, FirstRowSeesItselfAlone) {
  const Heads heads{4, 2, 7};
  const auto begin = begins({1, 5, 66});
  const Buffer qkv = random_qkv(begin.back(), heads);
  const Output out = forward(qkv, begin, heads);
  for (const int64_t row : {0, 1, 6})
    for (int64_t h = 0; h < heads.H; h++)
      for (int64_t k = 0; k < heads.K; k++)
        EXPECT_EQ(out.o.view().row(row)[h * heads.K + k],
                  qkv.view().row(row)[heads.q_cols() + heads.kv_cols() + h / 2 * heads.K + k]);
}

TEST_P(Attention, EqualScoresAverageTheValues) {
  const Heads heads{1, 1, 8};
  Buffer qkv = random_qkv(150, heads);
  for (int64_t row = 0; row < 150; row++) std::fill_n(qkv.view().row(row), 8, 0.0f);
  const Output out = forward(qkv, {0, 150}, heads);
  expect_forward_close(out, qkv, {0, 150}, heads);
  for (int64_t row = 0; row < 150; row++) EXPECT_NEAR(out.lse[row], std::log(double(row + 1)), 1e-6);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  const Heads heads{1, 1, 4};
  Buffer qkv = random_qkv(140, heads);
  for (int64_t row = 0; row < 140; row++)
    for (int64_t k = 0; k < 4; k++) {
      qkv.view().row(row)[k] = 100;
      qkv.view().row(row)[4 + k] = float(row % 3 - 1) * 50;  // scores of -1e4, 0 and 1e4
    }
  const Output out = forward(qkv, {0, 140}, heads);
  const auto want = reference::attention(to_double(qkv), {0, 140}, 1, 1, 4);
  expect_close(out.o.values, want.o, max_abs(random_qkv(140, heads)), 140);
  expect_close(out.lse.values, want.lse, 1e4, 4);
  const Buffer d_o = random_buffer({140, 4}, 2);
  for (const float g : backward(d_o, qkv, out, {0, 140}, heads).values) ASSERT_TRUE(std::isfinite(g));
}

TEST_P(Attention, NonFiniteInputIsSeen) {
  const Heads heads{1, 1, 4};
  Buffer qkv = random_qkv(70, heads);
  qkv.view().row(66)[5] = NAN;
  const Output out = forward(qkv, {0, 70}, heads);
  for (int64_t row = 0; row < 70; row++) EXPECT_EQ(std::isnan(out.o.view().row(row)[0]), row >= 66) << row;
}

TEST_P(Attention, InferenceWantsNoLse) {
  const Heads heads{2, 1, 8};
  const auto begin = begins(kLengths);
  const Buffer qkv = random_qkv(begin.back(), heads);
  Buffer o({begin.back(), heads.q_cols()});
  attention_forward(o, {}, qkv, view_of(begin), heads);
  expect_same_bits(o, forward(qkv, begin, heads).o);
}

TEST_P(Attention, EmptyLists) {
  const Heads heads{2, 1, 8};
  const Buffer qkv({0, heads.qkv_cols()});
  for (const std::vector<int32_t>& begin : {std::vector<int32_t>{0}, {0, 0}, {0, 0, 0}}) {
    const Output out = forward(qkv, begin, heads);
    backward(Buffer({0, heads.q_cols()}), qkv, out, begin, heads);
  }
  Buffer o({0, heads.q_cols()});
  const CachedSegment empty{0, 0, nullptr, nullptr, 0};
  attention_cached(o, qkv, {}, heads);
  attention_cached(o, qkv, {&empty, 1}, heads);
}

int64_t executed(const auto& run) {
  const int64_t before = executed_multiply_adds;
  run();
  return executed_multiply_adds - before;
}

TEST_P(Attention, CountedMultiplyAddsAreThePredicted) {
  std::vector<int64_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), 1);
  lengths.push_back(1000);
  for (const Heads heads : {Heads{1, 1, 4}, Heads{6, 2, 3}}) {
    const Buffer all = random_qkv(1000, heads), d_all = random_buffer({1000, heads.q_cols()}, 2);
    const Cache cache(all, heads);
    Output out{Buffer({1000, heads.q_cols()}), Buffer({1000, heads.H})};
    Buffer dqkv(all.shape);
    for (const int64_t n : lengths) {
      const std::vector<int32_t> begin{0, int32_t(n)};
      const CF32 qkv = all.view().slice(0, n);
      const F32 o = out.o.view().slice(0, n), lse = out.lse.view().slice(0, n);
      ASSERT_EQ(executed([&] { attention_forward(o, lse, qkv, view_of(begin), heads); }),
                attention_forward_multiply_adds(n, heads))
          << n;
      ASSERT_EQ(executed([&] {
                  attention_backward(dqkv.view().slice(0, n), d_all.view().slice(0, n), qkv, o, lse, view_of(begin),
                                     heads);
                }),
                attention_backward_multiply_adds(n, heads))
          << n;
      for (const int64_t queries : {int64_t(1), std::min<int64_t>(n, 50)}) {
        const CachedSegment segment{n - queries, queries, cache.key.values.data(), cache.value.values.data(), n};
        ASSERT_EQ(executed([&] {
                    attention_cached(o, qkv, {&segment, 1}, heads);
                  }),
                  attention_cached_multiply_adds(queries, n, heads))
            << queries << " of " << n;
      }
    }
  }
}

// The count stays near the causal half, which no program can undercut: n (n+1) / 2 pairs, two products of K.
TEST_P(Attention, MultiplyAddsAreNearTheCausalHalf) {
  const Heads heads{6, 6, 64};
  for (const int64_t n : {1, 7, 256, 1024}) {
    const int64_t least = n * (n + 1) * heads.K * heads.H;
    EXPECT_GE(attention_forward_multiply_adds(n, heads), least);
    EXPECT_GE(2 * attention_backward_multiply_adds(n, heads), 5 * least);
  }
  EXPECT_EQ(attention_forward_multiply_adds(1, heads), 2 * heads.K * heads.H);
  EXPECT_EQ(attention_cached_multiply_adds(1, 1000, heads), 2 * 1000 * heads.K * heads.H);
  EXPECT_LE(double(attention_forward_multiply_adds(1024, heads)), 1.02 * 1024 * 1025 * 64 * 6);
}

TEST_P(Attention, RefusesWhatDoesNotFit) {
  const Heads heads{4, 2, 8};
  const Buffer qkv = random_qkv(3, heads);
  Buffer o({3, heads.q_cols()}), lse({3, heads.H}), wrong({3, 5});
  const std::vector<int32_t> begin{0, 3}, late{1, 3}, early{0, 2}, falling{0, 5, 3};
  EXPECT_THROW(attention_forward(o, lse, qkv, view_of(begin), {4, 3, 8}), Error);
  EXPECT_THROW(attention_forward(o, lse, qkv, view_of(begin), {4, 2, 257}), Error);
  EXPECT_THROW(attention_forward(wrong, lse, qkv, view_of(begin), heads), Error);
  EXPECT_THROW(attention_forward(o, wrong, qkv, view_of(begin), heads), Error);
  EXPECT_THROW(attention_forward(o, lse, wrong, view_of(begin), heads), Error);
  for (const auto* bad : {&late, &early, &falling})
    EXPECT_THROW(attention_forward(o, lse, qkv, view_of(*bad), heads), Error);
  EXPECT_THROW(attention_backward(wrong, o, qkv, o, lse, view_of(begin), heads), Error);
  const Cache cache(qkv, heads);
  const CachedSegment few_keys{0, 3, cache.key.values.data(), cache.value.values.data(), 2};
  const CachedSegment outside{1, 3, cache.key.values.data(), cache.value.values.data(), 3};
  EXPECT_THROW(attention_cached(o, qkv, {&few_keys, 1}, heads), Error);
  EXPECT_THROW(attention_cached(o, qkv, {&outside, 1}, heads), Error);
}

}  // namespace
}  // namespace isobath
