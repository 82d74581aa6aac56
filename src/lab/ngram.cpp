#include "lab/ngram.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace isobath {
namespace {

constexpr int kTokenBits = 21;  // three tokens to a key

uint64_t key_of(std::span<const int32_t> tokens) {
  uint64_t key = 0;
  for (const int32_t token : tokens) key = key << kTokenBits | uint64_t(token);
  return key;
}

// Where `key` stands in an ascending list, or -1.
int64_t find(const std::vector<uint64_t>& keys, uint64_t key) {
  const auto at = std::lower_bound(keys.begin(), keys.end(), key);
  return at != keys.end() && *at == key ? at - keys.begin() : -1;
}

}  // namespace

Ngram::Ngram(const TokenStream& train, int64_t vocab_size, int order) : vocab_size_(vocab_size) {
  require(order >= 1 && order <= kMaxOrder, "n-gram: order is {}, expected 1 to {}", order, kMaxOrder);
  require(vocab_size >= 1 && vocab_size <= int64_t{1} << kTokenBits, "n-gram: a vocabulary of {}, expected 1 to {}",
          vocab_size, int64_t{1} << kTokenBits);
  require(train.size() >= 1, "n-gram: the text is empty");
  std::vector<int32_t> tokens(static_cast<size_t>(train.size()));
  train.read(0, tokens);
  for (int n = 1; n <= order; n++) levels_.push_back(count_level(tokens, n));
}

Ngram::Level Ngram::count_level(std::span<const int32_t> tokens, int n) {
  std::vector<uint64_t> keys;
  keys.reserve(tokens.size());
  for (size_t i = size_t(n); i <= tokens.size(); i++) keys.push_back(key_of(tokens.subspan(i - size_t(n), size_t(n))));
  std::sort(keys.begin(), keys.end());
  Level level;
  double once = 0, twice = 0;
  for (size_t i = 0; i < keys.size();) {
    size_t end = i + 1;
    while (end < keys.size() && keys[end] == keys[i]) end++;
    const int64_t count = int64_t(end - i);
    const uint64_t context = n == 1 ? 0 : keys[i] >> kTokenBits;
    if (level.context.empty() || level.context.back() != context) {
      level.context.push_back(context);
      level.context_count.push_back({0, 0});
    }
    level.context_count.back().total += count;
    level.context_count.back().distinct++;
    level.gram.push_back(keys[i]);
    level.count.push_back(count);
    once += count == 1;
    twice += count == 2;
    i = end;
  }
  if (once > 0 && twice > 0) level.discount = once / (once + 2 * twice);
  return level;
}

double Ngram::probability_of_order(std::span<const int32_t> context, int32_t token, int n) const {
  if (n == 0) return 1 / double(vocab_size_);
  const Level& level = levels_[size_t(n - 1)];
  const double shorter = probability_of_order(context, token, n - 1);
  const auto last = context.last(size_t(n - 1));
  const uint64_t key = key_of(last);
  const int64_t seen = find(level.context, key);
  if (seen < 0) return shorter;
  const auto [total, distinct] = level.context_count[size_t(seen)];
  const int64_t at = find(level.gram, key << kTokenBits | uint64_t(token));
  const double count = at < 0 ? 0 : double(level.count[size_t(at)]);
  return (std::max(count - level.discount, 0.0) + level.discount * double(distinct) * shorter) / double(total);
}

double Ngram::probability(std::span<const int32_t> context, int32_t token) const {
  return probability_of_order(context, token, std::min(order(), int(context.size()) + 1));
}

double Ngram::loss(const TokenStream& text, const LoaderOptions& options, int order) const {
  require(order >= 1 && order <= this->order(), "n-gram: order is {}, counted were 1 to {}", order, this->order());
  LoaderOptions one = options;
  one.B = 1;
  Loader loader(text, one);
  double sum = 0;
  int64_t targets = 0;
  for (int64_t w = 0; w < loader.eval_sequences(); w++) {
    const Batch& batch = loader.eval(w, 1);
    for (int64_t n = 0; n < batch.rows(); n++) {
      if (batch.target[n] < 0) continue;
      const int64_t known = std::min<int64_t>(batch.position[n] + 1, order - 1);
      const std::span<const int32_t> context(batch.token.data + n + 1 - known, size_t(known));
      sum -= std::log(probability(context, batch.target[n]));
      targets++;
    }
  }
  return sum / double(std::max<int64_t>(1, targets));
}

}  // namespace isobath
