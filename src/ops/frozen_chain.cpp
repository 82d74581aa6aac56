// Which sums of fp32 products have the bits of Linear's library.
//
// The library cuts k into chunks whose length its heuristics choose from K and the machine's caches. It cannot be asked
// for the length, so a small product is compared with ours for the lengths that it may have chosen.
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "base/rng.h"
#include "ops/frozen_weights.h"
#include "ops/linear.h"

namespace isobath::frozen {

namespace {

// One chain; K cut into equal pieces of whole 16s; powers of two and three times those.
std::vector<int64_t> candidates(int64_t K) {
  std::set<int64_t, std::greater<>> lengths;
  for (int64_t parts = 2; parts <= 16; parts++) lengths.insert((K + 16 * parts - 1) / (16 * parts) * 16);
  for (int64_t length = 64; length < K; length *= 2) lengths.insert({length, 3 * length / 2});
  std::vector<int64_t> all = {K};
  for (const int64_t length : lengths)
    if (length < K) all.push_back(length);
  return all;
}

int64_t find_chain(int64_t K) {
  constexpr int64_t M = 5, N = kPanel;
  std::vector<float> x(size_t(M * K)), W(size_t(N * K)), want(size_t(M * N)), got(want);
  const Rng rng(1, Stream::kInit);
  for (size_t i = 0; i < x.size(); i++) x[i] = rng.normal(i);
  for (size_t i = 0; i < W.size(); i++) W[i] = rng.normal(x.size() + i);
  Linear linear;
  Plan plan;
  linear.plan(plan, "chain", {.N = N, .K = K, .max_rows = M, .exact = {}, .backward = false});
  Weights weights{.format = WeightFormat::kF32, .N = N, .K = K, .chain = K};
  View<std::byte> packed;
  plan.add("chain", packed, {weights.bytes()});
  const Arena arena(plan);
  linear.pack({W.data(), {N, K}});
  linear.forward({want.data(), {M, N}}, {x.data(), {M, K}});
  pack(packed.data, weights, W.data());
  weights.data = packed.data;
  for (const int64_t chain : candidates(K)) {
    weights.chain = chain;
    run(weights, got.data(), x.data(), nullptr, M);
    if (std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0) return chain;
  }
  return 0;
}

}  // namespace

int64_t chain_of_linear(int64_t K) {
  static std::mutex mutex;
  static std::map<int64_t, int64_t> known;
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = known.try_emplace(K, 0);
  if (is_new) place->second = find_chain(K);
  return place->second;
}

}  // namespace isobath::frozen
