#include "generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"
#include "support/compare.h"

namespace isobath {
namespace {

using namespace testing;

// The formula of the header, straight: probability of every id.
std::vector<double> probabilities(const Buffer& logits, const SamplerOptions& o) {
  const size_t V = logits.values.size();
  std::vector<size_t> order(V);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits.values[a] > logits.values[b]; });
  std::vector<double> w(V, 0.0);
  for (size_t i = 0; i < V; i++)
    w[i] = std::exp((double(logits.values[i]) - double(logits.values[order[0]])) / o.temperature);
  size_t kept = o.top_k > 0 ? std::min(size_t(o.top_k), V) : V;
  double total = 0, held = 0;
  for (size_t i = 0; i < kept; i++) total += w[order[i]];
  size_t beginning = 0;
  while (beginning < kept && (o.top_p == 1 || held < o.top_p * total)) held += w[order[beginning++]];
  std::vector<double> p(V, 0.0);
  double left = 0;
  for (size_t i = 0; i < beginning; i++)
    if (w[order[i]] >= o.min_p) left += p[order[i]] = w[order[i]];
  for (double& value : p) value /= left;
  return p;
}

// Draws at `draws` positions and compares the frequencies with the formula: nothing outside the kept set, and inside
// within five standard deviations of the binomial count.
void expect_frequencies(const Buffer& logits, const SamplerOptions& o, int64_t draws = 10000) {
  const std::vector<double> p = probabilities(logits, o);
  std::vector<int64_t> count(p.size(), 0);
  Sampler sampler(int64_t(p.size()));
  for (int64_t position = 0; position < draws; position++) count[size_t(sampler.sample(logits, o, position))]++;
  for (size_t i = 0; i < p.size(); i++) {
    if (p[i] == 0) {
      ASSERT_EQ(count[i], 0) << "id " << i << " was filtered out";
      continue;
    }
    const double deviation = std::sqrt(double(draws) * p[i] * (1 - p[i]));
    ASSERT_NEAR(double(count[i]), double(draws) * p[i], 5 * deviation + 1) << "id " << i;
  }
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOfEquals) {
  Buffer logits({5}, -1.0f);
  Sampler sampler(5);
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, 0), 0);
  logits[3] = logits[1] = 2;
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, 0), 1);
  logits[4] = 2.5f;
  EXPECT_EQ(sampler.sample(logits, {.temperature = 0}, 9), 4);
}

TEST(Sampler, FrequenciesFollowTheFormula) {
  const Buffer logits = random_buffer({23}, 1, 2);
  expect_frequencies(logits, {.temperature = 1, .seed = 3});
  expect_frequencies(logits, {.temperature = 0.6, .seed = 4});
  expect_frequencies(logits, {.temperature = 2.5, .seed = 5});
  expect_frequencies(logits, {.temperature = 1, .top_k = 4, .seed = 6});
  expect_frequencies(logits, {.temperature = 1, .top_k = 23, .seed = 7});
  expect_frequencies(logits, {.temperature = 1, .top_p = 0.7, .seed = 8});
  expect_frequencies(logits, {.temperature = 1, .min_p = 0.1, .seed = 9});
  expect_frequencies(logits, {.temperature = 1.3, .top_k = 9, .top_p = 0.8, .min_p = 0.05, .seed = 10});
}

// Drafts of q, judged by p, at `draws` positions: as p. The bound is the 0.999 quantile of chi-square, nearly.
void expect_verified_frequencies(const Buffer& p_logits, const Buffer& q_logits, const SamplerOptions& o) {
  constexpr int64_t kDraws = 20000;
  const std::vector<double> p = probabilities(p_logits, o), q = probabilities(q_logits, o);
  std::vector<int64_t> count(p.size(), 0);
  Sampler sampler(int64_t(p.size()));
  int64_t stand = 0;
  for (int64_t position = 0; position < kDraws; position++) {
    const int32_t drafted = sampler.draft(q_logits, o, position);
    const int32_t token = sampler.verify(p_logits, q_logits, drafted, o, position);
    stand += token == drafted;
    count[size_t(token)]++;
  }
  double chi_square = 0, kept = 0, common = 0;
  for (size_t i = 0; i < p.size(); i++) {
    common += std::min(p[i], q[i]);
    if (p[i] == 0) {
      ASSERT_EQ(count[i], 0) << "id " << i << " was filtered out";
      continue;
    }
    kept++;
    chi_square += std::pow(double(count[i]) - p[i] * double(kDraws), 2) / (p[i] * double(kDraws));
  }
  EXPECT_LT(chi_square, kept - 1 + 4.5 * std::sqrt(2 * (kept - 1)) + 1);
  EXPECT_NEAR(double(stand) / double(kDraws), common, 0.02) << "as many stand as can";
}

TEST(Sampler, VerifiedDraftsFollowTheModelWhateverTheDraft) {
  const Buffer p = random_buffer({7}, 1, 1.5f);
  for (const uint64_t seed : {2, 3, 4}) {
    const Buffer q = random_buffer({7}, seed, 1.5f);
    expect_verified_frequencies(p, q, {.temperature = 1, .seed = seed});
    expect_verified_frequencies(p, q, {.temperature = 0.6, .seed = seed});
    expect_verified_frequencies(p, q, {.temperature = 1.4, .top_k = 3, .seed = seed});  // few are in both
    expect_verified_frequencies(p, q, {.temperature = 1.2, .top_k = 6, .top_p = 0.8, .min_p = 0.05, .seed = seed});
  }
  expect_verified_frequencies(p, p, {.temperature = 1, .seed = 8});  // all stand
}

TEST(Sampler, GreedyDraftsStandIfTheyAreTheLargest) {
  const Buffer p = random_buffer({7}, 1), q = random_buffer({7}, 3);
  Sampler sampler(7);
  const int32_t best = sampler.sample(p, {.temperature = 0}, 0), drafted = sampler.draft(q, {.temperature = 0}, 0);
  EXPECT_EQ(drafted, sampler.sample(q, {.temperature = 0}, 0));
  ASSERT_NE(best, drafted);
  for (int64_t position = 0; position < 50; position++) {
    EXPECT_EQ(sampler.verify(p, q, drafted, {.temperature = 0}, position), best);
    EXPECT_EQ(sampler.verify(p, p, best, {.temperature = 0}, position), best);
  }
}

TEST(Sampler, TopPSortsAsFarAsItNeeds) {
  const Buffer logits = random_buffer({300}, 2, 0.3f);  // flat: most ids are kept
  expect_frequencies(logits, {.temperature = 1, .top_p = 0.9, .seed = 1}, 6000);
  expect_frequencies(logits, {.temperature = 1, .top_k = 150, .top_p = 0.9, .seed = 2}, 6000);
}

TEST(Sampler, TiesAtTheEdgeOfAFilterGoToTheLowerIds) {
  const Buffer logits({40}, 0.5f);
  Sampler sampler(40);
  for (int64_t position = 0; position < 300; position++) {
    EXPECT_LT(sampler.sample(logits, {.top_k = 3}, position), 3);
    EXPECT_LT(sampler.sample(logits, {.top_p = 0.1}, position), 4);
  }
}

TEST(Sampler, EveryFilterKeepsTheLikeliest) {
  Buffer logits = random_buffer({17}, 3);
  logits[11] = 9;
  Sampler sampler(17);
  for (int64_t position = 0; position < 50; position++) {
    EXPECT_EQ(sampler.sample(logits, {.top_k = 1}, position), 11);
    EXPECT_EQ(sampler.sample(logits, {.top_p = 1e-9}, position), 11);
    EXPECT_EQ(sampler.sample(logits, {.min_p = 1}, position), 11);
    EXPECT_EQ(sampler.sample(logits, {.temperature = 1e-30}, position), 11);
  }
}

TEST(Sampler, TokenIsAFunctionOfLogitsSeedAndPosition) {
  const Buffer logits = random_buffer({300}, 4), others = random_buffer({300}, 5);
  Sampler used(300), fresh(300);
  std::vector<int32_t> tokens, other_seed;
  for (int64_t position = 0; position < 40; position++) {
    used.sample(others, {.top_p = 0.5, .seed = 8}, position);
    tokens.push_back(used.sample(logits, {.seed = 5}, position));
    other_seed.push_back(used.sample(logits, {.seed = 6}, position));
  }
  for (int64_t position = 39; position >= 0; position--)
    EXPECT_EQ(fresh.sample(logits, {.seed = 5}, position), tokens[size_t(position)]);
  EXPECT_NE(tokens, other_seed);
  EXPECT_GT(std::set<int32_t>(tokens.begin(), tokens.end()).size(), 10u);
}

TEST(Sampler, NonFiniteLogitStopsWithItsToken) {
  Sampler sampler(6);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY})
    for (const double temperature : {0.0, 1.0}) {
      Buffer logits({6}, 0.0f);
      logits[4] = bad;
      try {
        sampler.sample(logits, {.temperature = temperature}, 12);
        FAIL() << "no error for " << bad;
      } catch (const Error& error) {
        EXPECT_EQ(error.fault(), Fault::kWork);
        EXPECT_NE(std::string(error.what()).find("token 4 for position 12"), std::string::npos) << error.what();
      }
    }
}

TEST(Sampler, OptionsOutOfRangeAreRefused) {
  EXPECT_NO_THROW(check({}));
  EXPECT_NO_THROW(check({.temperature = 0, .top_k = 0, .top_p = 1, .min_p = 1}));
  EXPECT_THROW(check({.temperature = -0.1}), Error);
  EXPECT_THROW(check({.temperature = NAN}), Error);
  EXPECT_THROW(check({.temperature = INFINITY}), Error);
  EXPECT_THROW(check({.top_k = -1}), Error);
  EXPECT_THROW(check({.top_p = 0}), Error);
  EXPECT_THROW(check({.top_p = 1.1}), Error);
  EXPECT_THROW(check({.top_p = NAN}), Error);
  EXPECT_THROW(check({.min_p = -0.1}), Error);
  EXPECT_THROW(check({.min_p = NAN}), Error);
  const Buffer logits({3}, 0.0f);
  EXPECT_THROW(Sampler(4).sample(logits, {}, 0), Error);
}

}  // namespace
}  // namespace isobath
