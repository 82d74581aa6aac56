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

// A product of the library and of ours, of the same numbers.
class Trial {
 public:
  static constexpr int64_t kN = 33, kMostRows = 16;

  explicit Trial(int64_t K)
      : K_(K), x_(size_t(kMostRows * K)), y_(size_t(kMostRows * kN)), want_(y_), ours_{WeightFormat::kF32, kN, K, K} {
    std::vector<float> W(size_t(kN * K));
    const Rng rng(1, Stream::kBench);
    for (size_t i = 0; i < x_.size(); i++) x_[i] = rng.normal(i);
    for (size_t i = 0; i < W.size(); i++) W[i] = rng.normal(x_.size() + i);
    Plan plan;
    View<std::byte> packed;
    linear_.plan(plan, "chain", {.N = kN, .K = K, .max_rows = kMostRows, .exact = {}, .backward = false});
    plan.add("chain", packed, {ours_.bytes()});
    arena_ = Arena(plan);
    linear_.pack({W.data(), {kN, K}});
    const RawMatrix whole = raw({W.data(), {kN, K}});
    pack(packed.data, ours_, {&whole, 1});
    ours_.data = packed.data;
  }

  bool same(int64_t chain, int64_t M) {
    ours_.chain = chain;
    linear_.forward({want_.data(), {M, kN}}, {x_.data(), {M, K_}});
    run(ours_, y_.data(), x_.data(), nullptr, M);
    return std::memcmp(y_.data(), want_.data(), size_t(M * kN) * sizeof(float)) == 0;
  }

 private:
  int64_t K_;
  std::vector<float> x_, y_, want_;
  Weights ours_;
  Linear linear_;
  Arena arena_;
};

// A library whose sums depend on M agrees at some M only.
int64_t find_chain(int64_t K) {
  Trial trial(K);
  for (const int64_t chain : candidates(K)) {
    const auto rows = {int64_t(1), int64_t(2), int64_t(7), Trial::kMostRows};
    if (std::all_of(rows.begin(), rows.end(), [&](int64_t M) { return trial.same(chain, M); })) return chain;
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
