#include "ops/embedding.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "reference/embedding.h"
#include "reference/gradient.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath {
namespace {
using namespace testing;

List random_tokens(int64_t n, int64_t vocabulary, uint64_t seed) {
  List token(n);
  for (int64_t i = 0; i < n; i++) token[i] = int32_t(Rng(seed, Stream::kBench).below(vocabulary, uint64_t(i)));
  return token;
}

TEST(Embedding, CopiesRows) {
  for (const int64_t D : {1, 7, 33}) {
    const List token = {4, 0, 4, 2, 1};
    const Buffer table = random_buffer({5, D}, 1);
    Buffer x({5, D});
    embedding_forward(x, token, table);
    const auto want = reference::embedding(table.values, token.values, size_t(D));
    expect_same_bits(x.values.data(), want.data(), 5 * D);
  }
}

TEST(Embedding, BackwardAddsToTheTable) {
  for (const int64_t D : {1, 7, 40}) {
    const List token = {4, 0, 4, 2, 4};
    const Buffer dx = random_buffer({5, D}, 2);
    Buffer dtable({5, D}, 10);
    embedding_backward(add_to(dtable), dx, token);
    auto want = reference::complex_step(std::vector<double>(size_t(5 * D)), [&](const auto& table) {
      const auto x = reference::embedding(table, token.values, size_t(D));
      reference::Complex loss = 0;
      for (size_t i = 0; i < x.size(); i++) loss += x[i] * double(dx[int64_t(i)]);
      return loss;
    });
    for (double& v : want) v += 10;
    expect_close(dtable.values, want, 10 + max_abs(dx), 5);
  }
}

TEST(Embedding, BackwardHasTheSameBitsForAnyNumberOfThreads) {
  const List token = random_tokens(999, 5, 3);
  const Buffer dx = random_buffer({999, 83}, 4);
  const auto run = [&] {
    Buffer dtable = random_buffer({5, 83}, 5);
    embedding_backward(add_to(dtable), dx, token);
    return dtable;
  };
  const Buffer one = with_threads(1, run);
  Buffer plain = random_buffer({5, 83}, 5);
  for (int64_t n = 0; n < 999; n++)
    for (int64_t d = 0; d < 83; d++) plain[token[n] * 83 + d] += dx[n * 83 + d];
  expect_same_bits(one, plain, "ascending rows");
  for (const int threads : {2, 3, 7}) expect_same_bits(one, with_threads(threads, run), "threads");
}

TEST(Embedding, NoRowsDoNothing) {
  Buffer dtable({3, 2}, 10), x({0, 2});
  embedding_forward(x, List(0), Buffer({3, 2}, 1));
  embedding_backward(add_to(dtable), Buffer({0, 2}), List(0));
  expect_same_bits(dtable, Buffer({3, 2}, 10));
}

TEST(Embedding, NamesATokenOutsideTheVocabulary) {
  Buffer x({2, 3}), table({5, 3}, 0);
  try {
    embedding_forward(x, List{1, 5}, table);
    FAIL();
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "embedding_forward: token[1] is 5, but there are 5 vocabulary entries; expected 0 to 4");
  }
  EXPECT_THROW(embedding_backward(add_to(table), x, List{-1, 0}), Error);
  EXPECT_THROW(embedding_forward(x, List{1}, table), Error);
}

}  // namespace
}  // namespace isobath
