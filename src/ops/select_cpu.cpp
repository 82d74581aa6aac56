#include <array>
#include <bit>

#include "base/parallel.h"
#include "ops/select.h"

namespace isobath::cpu {
namespace {

// Bits of a float in an order of integers: a < b exactly if key(a) < key(b). Adding 0 makes -0 a +0.
uint32_t order_key(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

struct Threshold {
  uint32_t key;  // the k-th largest
  int64_t ties;  // how many of the keys equal to it are among the k
};

// The k-th largest key, 1 <= k <= T, one byte of it at a time from the top: four passes, whatever the keys are.
Threshold kth_largest(const uint32_t* key, int64_t T, int64_t k) {
  uint32_t found = 0, known = 0;  // the bytes found so far, and a mask of them
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::array<int32_t, 256> count{};
    for (int64_t i = 0; i < T; i++) count[(key[i] >> shift) & 255] += (key[i] & known) == found;
    uint32_t digit = 255;
    while (count[digit] < k) k -= count[digit--];
    found |= digit << shift;
    known |= 255u << shift;
  }
  return {found, k};
}

// The k rows with the largest score of rows [begin, end), ascending, to `to`.
void select_sequence(int32_t* to, const float* score, uint32_t* key, Range rows, int64_t k) {
  for (int64_t n = rows.begin; n < rows.end; n++) key[n] = order_key(score[n]);
  auto [least, ties] = kth_largest(key + rows.begin, rows.end - rows.begin, k);
  for (int64_t n = rows.begin, chosen = 0; chosen < k; n++) {
    const bool tie = key[n] == least && ties > 0;
    ties -= tie;
    to[chosen] = int32_t(n);
    chosen += tie || key[n] > least;
  }
}

}  // namespace

int64_t first_non_finite(CF32 score) {
  constexpr uint32_t kExponent = 0x7F800000u;
  const int64_t N = score.numel();
  const auto non_finite = [&](int64_t n) { return (std::bit_cast<uint32_t>(score[n]) & kExponent) == kExponent; };
  bool any = false;
  for (int64_t n = 0; n < N; n++) any |= non_finite(n);
  if (!any) return N;
  int64_t n = 0;
  while (!non_finite(n)) n++;
  return n;
}

int64_t select_top_k(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, double capacity, I32 scratch) {
  const int64_t B = sequence_begin.numel() - 1, N = score.numel();
  constexpr int64_t kGrain = 4096;  // rows that are chosen from in less time than a fork takes
  chosen_begin[0] = 0;
  for (int64_t s = 0; s < B; s++)
    chosen_begin[s + 1] = chosen_begin[s] + int32_t(capacity_rows(capacity, sequence_begin[s + 1] - sequence_begin[s]));
  uint32_t* key = reinterpret_cast<uint32_t*>(scratch.data);
  parallel_for(B, N > kGrain ? 1 : B, [&](int64_t s) {
    const int64_t k = chosen_begin[s + 1] - chosen_begin[s];
    if (k > 0)
      select_sequence(index.data + chosen_begin[s], score.data, key, {sequence_begin[s], sequence_begin[s + 1]}, k);
  });
  return chosen_begin[B];
}

int64_t select_above(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, float offset) {
  const int64_t B = sequence_begin.numel() - 1;
  int32_t chosen = 0;
  chosen_begin[0] = 0;
  for (int64_t s = 0; s < B; s++) {
    for (int32_t n = sequence_begin[s]; n < sequence_begin[s + 1]; n++) {
      index[chosen] = n;  // kept if the row is chosen, else overwritten
      chosen += score[n] + offset > 0;
    }
    chosen_begin[s + 1] = chosen;
  }
  return chosen;
}

}  // namespace isobath::cpu
