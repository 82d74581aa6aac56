#include "ops/attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/parallel.h"
#include "reference/attention.h"
#include "reference/gradient.h"
#include "support/attention.h"
#include "support/compare.h"

namespace isobath {
namespace {

using namespace isobath::testing;

INSTANTIATE_TEST_SUITE_P(OnEachTarget, Attention, ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

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
        const CachedSegment segment = cache.segment(row, count, row + count);
        attention_cached(o, qkv, {&segment, 1}, cache.pages, heads);
      }
      expect_same_bits(o, whole.o);
    }
  }
}

// What a cache rounds is the keys and values, no more: queries and sums stay fp32.
TEST_P(Attention, CachedInBf16IsFp32AttentionToTheRoundedRows) {
  for (const Heads heads : {Heads{4, 2, 32}, Heads{3, 3, 7}, Heads{32, 1, 16}}) {
    const int64_t n = 150;
    const Buffer qkv = random_qkv(n, heads);
    Buffer rounded = qkv;
    for (int64_t row = 0; row < n; row++)
      for (int64_t c = heads.q_cols(); c < heads.qkv_cols(); c++) {
        float& value = rounded.view().row(row)[c];
        value = to_f32(to_stored<Bf16>(value));
      }
    const Cache cache(qkv, heads, Storage::kBf16);
    const Output whole = forward(rounded, {0, int32_t(n)}, heads);
    for (const int64_t chunk : {1, 5, 150}) {
      Buffer o({n, heads.q_cols()});
      for (int64_t row = 0; row < n; row += chunk) {
        const CachedSegment segment = cache.segment(row, std::min(chunk, n - row), std::min(row + chunk, n));
        attention_cached(o, qkv, {&segment, 1}, cache.pages, heads);
      }
      expect_same_bits(o, whole.o);
    }
  }
}

TEST_P(Attention, CachedBatchHasTheBitsOfEachAlone) {
  const Heads heads{4, 2, 32};
  const std::vector<int64_t> keys{130, 1, 64, 0, 77, 65, 200, 2}, queries{1, 1, 3, 0, 70, 1, 2, 1};
  std::vector<Buffer> lists;
  std::vector<int64_t> begin;  // all lists' rows in one cache, each list from the start of a page
  int64_t cached = 0;
  for (size_t i = 0; i < keys.size(); i++) {
    lists.push_back(random_qkv(keys[i], heads, 10 + i));
    begin.push_back(cached);
    cached += pages_for(keys[i]) * kPageRows;
  }
  Buffer all({cached, heads.qkv_cols()});
  for (size_t i = 0; i < keys.size(); i++)
    std::copy(lists[i].values.begin(), lists[i].values.end(), all.view().row(begin[i]));
  const Cache cache(all, heads);
  const int64_t rows = std::accumulate(queries.begin(), queries.end(), int64_t(0));
  Buffer qkv({rows, heads.qkv_cols()}), want({rows, heads.q_cols()});
  std::vector<CachedSegment> segments;
  int64_t at = 0;
  for (size_t i = 0; i < keys.size(); i++) {
    const int64_t first = keys[i] - queries[i];
    const Output alone = forward(lists[i], {0, int32_t(keys[i])}, heads);
    std::copy_n(lists[i].view().row(first), queries[i] * heads.qkv_cols(), qkv.view().row(at));
    std::copy_n(alone.o.view().row(first), queries[i] * heads.q_cols(), want.view().row(at));
    segments.push_back({at, queries[i], cache.page.data() + begin[i] / kPageRows, keys[i]});
    at += queries[i];
  }
  for (const int t : {1, 2}) {
    set_thread_count(t);
    Buffer o({rows, heads.q_cols()});
    attention_cached(o, qkv, segments, cache.pages, heads);
    expect_same_bits(o, want);
    std::reverse(segments.begin(), segments.end());
  }
}

TEST_P(Attention, CachedWritesOnlyItsOwnRows) {
  const Heads heads{2, 1, 8};
  const Buffer qkv = random_qkv(3, heads);
  const Cache cache(qkv, heads);
  Buffer o({3, heads.q_cols()}, 7.0f);
  const CachedSegment segment = cache.segment(1, 1, 2);
  attention_cached(o, qkv, {&segment, 1}, cache.pages, heads);
  for (int64_t c = 0; c < heads.q_cols(); c++) {
    EXPECT_EQ(o[c], 7.0f);
    EXPECT_NE(o[heads.q_cols() + c], 7.0f);
    EXPECT_EQ(o[2 * heads.q_cols() + c], 7.0f);
  }
}

}  // namespace
}  // namespace isobath
