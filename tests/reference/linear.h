// y = x W^T and its backward products, in float64. x (M,K)  W (N,K)  y (M,N).
#pragma once

#include <cstdint>
#include <vector>

namespace isobath::reference {

// c (I,J) = sum_l a[i,l] b[l,j], each factor addressed by its two strides.
template <class T>
std::vector<T> product(int64_t I, int64_t L, int64_t J, const std::vector<T>& a, int64_t ai, int64_t al,
                       const std::vector<T>& b, int64_t bl, int64_t bj) {
  std::vector<T> c(size_t(I * J));
  for (int64_t i = 0; i < I; i++)
    for (int64_t j = 0; j < J; j++)
      for (int64_t l = 0; l < L; l++) c[size_t(i * J + j)] += a[size_t(i * ai + l * al)] * b[size_t(l * bl + j * bj)];
  return c;
}

template <class T>
std::vector<T> linear_forward(const std::vector<T>& x, const std::vector<T>& W, int64_t M, int64_t N, int64_t K) {
  return product(M, K, N, x, K, 1, W, 1, K);
}
template <class T>
std::vector<T> linear_backward_input(const std::vector<T>& dy, const std::vector<T>& W, int64_t M, int64_t N,
                                     int64_t K) {
  return product(M, N, K, dy, N, 1, W, K, 1);
}
template <class T>
std::vector<T> linear_backward_weight(const std::vector<T>& dy, const std::vector<T>& x, int64_t M, int64_t N,
                                      int64_t K) {
  return product(N, M, K, dy, 1, N, x, K, 1);
}

}  // namespace isobath::reference
