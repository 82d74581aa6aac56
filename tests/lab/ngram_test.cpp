#include "lab/ngram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace isobath {
namespace {

// Tokens a = 0, b = 1, c = 2 (which ends documents); V = 4, of which 3 never occurs.
// Text: a b a b a a c.  Unigrams: a 4, b 2, c 1.  Bigrams: ab 2, ba 2, aa 1, ac 1.  Trigrams: aba 2, bab 1, baa 1,
// aac 1.
TokenStream text() {
  const std::vector<std::vector<int32_t>> documents{{0, 1, 0, 1, 0, 0}};
  return stream_of(documents, 2);
}

// d1: one seen once, one twice: 1 / (1 + 2) = 1/3.  d2: two once, two twice: 2 / (2 + 4) = 1/3.
// d3: three once, one twice: 3 / (3 + 2) = 3/5.
constexpr double d1 = 1.0 / 3, d2 = 1.0 / 3, d3 = 3.0 / 5;
double p1(int token) {
  const double count[] = {4, 2, 1, 0};
  return (std::max(count[token] - d1, 0.0) + d1 * 3 / 4) / 7;
}

TEST(Ngram, UnigramByHand) {
  const Ngram counts(text(), 4, 1);
  for (int token = 0; token < 4; token++) EXPECT_NEAR(counts.probability({}, token), p1(token), 1e-15);
}

TEST(Ngram, BigramByHand) {
  const Ngram counts(text(), 4, 2);
  const std::vector<int32_t> a{0}, b{1}, c{2};
  // After a: ab twice, aa once, ac once: 4 in all, 3 kinds. After b: ba twice. After c: nothing.
  EXPECT_NEAR(counts.probability(a, 1), (2 - d2) / 4 + d2 * 3 / 4 * p1(1), 1e-15);
  EXPECT_NEAR(counts.probability(a, 0), (1 - d2) / 4 + d2 * 3 / 4 * p1(0), 1e-15);
  EXPECT_NEAR(counts.probability(a, 3), d2 * 3 / 4 * p1(3), 1e-15);
  EXPECT_NEAR(counts.probability(b, 0), (2 - d2) / 2 + d2 * 1 / 2 * p1(0), 1e-15);
  EXPECT_NEAR(counts.probability(c, 1), p1(1), 1e-15);
}

TEST(Ngram, TrigramByHand) {
  const Ngram counts(text(), 4);
  const std::vector<int32_t> ba{1, 0}, long_context{2, 2, 1, 0}, ca{2, 0};
  const double after_a_b = (2 - d2) / 4 + d2 * 3 / 4 * p1(1);
  // After ba: bab once, baa once.
  EXPECT_NEAR(counts.probability(ba, 1), (1 - d3) / 2 + d3 * 2 / 2 * after_a_b, 1e-15);
  EXPECT_EQ(counts.probability(long_context, 1), counts.probability(ba, 1)) << "only the last two tokens count";
  EXPECT_NEAR(counts.probability(ca, 1), after_a_b, 1e-15) << "an unseen context falls back";
}

TEST(Ngram, SumsToOne) {
  const Ngram counts(text(), 4);
  for (const std::vector<int32_t>& context :
       {std::vector<int32_t>{}, {0}, {1}, {2}, {3}, {0, 1}, {1, 0}, {0, 0}, {3, 0}, {2, 2}}) {
    double sum = 0;
    for (int token = 0; token < 4; token++) sum += counts.probability(context, token);
    EXPECT_NEAR(sum, 1, 1e-14);
  }
}

// Windows of two: each begins without context, so its first target is scored by the bigram.
TEST(Ngram, ScoresTheWindowsOfAnEvaluation) {
  const Ngram counts(text(), 4);
  const std::vector<std::vector<int32_t>> documents{{1, 0, 1, 0}};  // b a b a c: targets a b a c
  const TokenStream valid = stream_of(documents, 2);
  const std::vector<int32_t> b{1}, ba{1, 0};
  const double want = -(std::log(counts.probability(b, 0)) + std::log(counts.probability(ba, 1)) +
                        std::log(counts.probability(b, 0)) + std::log(counts.probability(ba, 2))) /
                      4;
  EXPECT_NEAR(counts.loss(valid, {.T = 2, .B = 1}, 3), want, 1e-14);
  const double unigram = -(2 * std::log(p1(0)) + std::log(p1(1)) + std::log(p1(2))) / 4;
  EXPECT_NEAR(counts.loss(valid, {.T = 2, .B = 1}, 1), unigram, 1e-14);
}

TEST(Ngram, RefusesWhatItCannotCount) {
  EXPECT_THROW(Ngram(text(), 4, 0), Error);
  EXPECT_THROW(Ngram(text(), 4, 4), Error);
  EXPECT_THROW(Ngram(text(), (int64_t{1} << 21) + 1), Error);
  EXPECT_THROW(Ngram(text(), 4, 2).loss(text(), {.T = 2, .B = 1}, 3), Error);
}

}  // namespace
}  // namespace isobath
