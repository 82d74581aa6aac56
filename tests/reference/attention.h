// The formula of ops/attention.h, row by row. Judge of attention_forward, attention_cached and attention_backward.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

namespace isobath::reference {

template <class T>
struct Attention {
  std::vector<T> o;    // (S, H*K)
  std::vector<T> lse;  // (S, H)
};

template <class T>
Attention<T> attention(const std::vector<T>& qkv, const std::vector<int32_t>& segment_begin, int64_t H, int64_t G,
                       int64_t K) {
  const int64_t S = segment_begin.back(), cols = (H + 2 * G) * K;
  const auto at = [&](int64_t row, int64_t col) { return qkv[size_t(row * cols + col)]; };
  Attention<T> result{std::vector<T>(size_t(S * H * K), T(0)), std::vector<T>(size_t(S * H))};
  for (size_t segment = 0; segment + 1 < segment_begin.size(); segment++)
    for (int64_t i = segment_begin[segment]; i < segment_begin[segment + 1]; i++)
      for (int64_t h = 0; h < H; h++) {
        const int64_t g = h / (H / G);
        std::vector<T> score;
        double max = -INFINITY;  // a constant shift, so the formula stays analytic
        for (int64_t j = segment_begin[segment]; j <= i; j++) {
          T dot(0);
          for (int64_t k = 0; k < K; k++) dot += at(i, h * K + k) * at(j, (H + g) * K + k);
          score.push_back(dot / std::sqrt(double(K)));
          max = std::max(max, std::real(score.back()));
        }
        T sum(0);
        for (T& s : score) sum += s = std::exp(s - max);
        for (size_t j = 0; j < score.size(); j++)
          for (int64_t k = 0; k < K; k++)
            result.o[size_t((i * H + h) * K + k)] +=
                score[j] / sum * at(segment_begin[segment] + int64_t(j), (H + G + g) * K + k);
        result.lse[size_t(i * H + h)] = std::log(sum) + max;
      }
  return result;
}

}  // namespace isobath::reference
