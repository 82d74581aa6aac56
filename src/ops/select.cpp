#include "ops/select.h"

#include <cmath>

#include "base/work.h"
#include "ops/device.h"
#include "ops/rows.h"

namespace isobath {
namespace cpu {
int64_t select_top_k(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, double capacity, I32 scratch);
int64_t select_above(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, float offset);
int64_t first_non_finite(CF32 score);
}  // namespace cpu

namespace {
void check(const char* op, I32 chosen_begin, CF32 score, CI32 sequence_begin) {
  const int64_t B = sequence_begin.numel() - 1, N = score.numel();
  require(B >= 0, "{}: sequence_begin is empty, expected one entry per sequence and a last one", op);
  require_shape(op, "chosen_begin", chosen_begin, {B + 1});
  require(sequence_begin[0] == 0 && sequence_begin[B] == N, "{}: sequences run from row {} to {}, expected 0 to {}", op,
          sequence_begin[0], sequence_begin[B], N);
  for (int64_t s = 0; s < B; s++)
    require(sequence_begin[s] <= sequence_begin[s + 1], "{}: sequence {} begins at row {} and ends at {}", op, s,
            sequence_begin[s], sequence_begin[s + 1]);
}

void require_finite(const char* op, CF32 score) {
  const int64_t row = cpu::first_non_finite(score);
  if (row < score.numel())
    fail_work(
        "{}: the score of row {} is {}, expected a finite number; the run has diverged: try a lower learning rate", op,
        row, score[row]);
}
}  // namespace

// The 1e-9 keeps a capacity written in decimal, such as 0.7 of 10 rows, from losing a row to its binary rounding.
int64_t capacity_rows(double capacity, int64_t sequence_rows) {
  require(capacity > 0 && capacity <= 1, "capacity_rows: capacity {}, expected more than 0 and at most 1", capacity);
  if (sequence_rows == 0) return 0;
  return std::clamp<int64_t>(int64_t(std::floor(capacity * double(sequence_rows) + 1e-9)), 1, sequence_rows);
}

namespace {
// Spaced rows among the first p.
int64_t spaced_before(double capacity, int64_t p) { return int64_t(std::floor(capacity * double(p) + 1e-9)); }
}  // namespace

bool spaced(double capacity, int64_t p) { return spaced_before(capacity, p + 1) > spaced_before(capacity, p); }
int64_t spaced_rows(double capacity, int64_t sequence_rows) { return spaced_before(capacity, sequence_rows); }

// Plain code: a few thousand rows of integers.
int64_t select_spaced(I32 index, I32 chosen_begin, CI32 sequence_begin, double capacity) {
  const Work work("select_spaced", {.bytes = bytes_of(chosen_begin, sequence_begin)});
  const int64_t B = sequence_begin.numel() - 1;
  require_shape("select_spaced", "chosen_begin", chosen_begin, {B + 1});
  if (index.device != Device::kCpu) throw_no_device("select_spaced", index.device);
  int64_t chosen = 0;
  for (int64_t s = 0; s < B; s++) {
    const int32_t begin = sequence_begin[s], end = sequence_begin[s + 1];
    const int64_t count = spaced_rows(capacity, end - begin);
    require(index.numel() >= chosen + count, "select_spaced: index holds {} rows, expected {} or more", index.numel(),
            chosen + count);
    chosen_begin[s] = int32_t(chosen);
    for (int32_t n = begin; n < end; n++)
      if (spaced(capacity, n - begin)) index[chosen++] = n;
  }
  chosen_begin[B] = int32_t(chosen);
  count_bytes(chosen * int64_t(sizeof(int32_t)));
  return chosen;
}

int64_t select_top_k(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, double capacity, I32 scratch) {
  const Work work("select_top_k", {.bytes = bytes_of(score, chosen_begin, sequence_begin)});
  check("select_top_k", chosen_begin, score, sequence_begin);
  require(scratch.numel() >= score.numel(), "select_top_k: scratch holds {} entries, expected {} or more",
          scratch.numel(), score.numel());
  int64_t chosen = 0;
  for (int64_t s = 0; s + 1 < sequence_begin.numel(); s++)
    chosen += capacity_rows(capacity, sequence_begin[s + 1] - sequence_begin[s]);
  require(index.numel() >= chosen, "select_top_k: index holds {} rows, expected {} or more", index.numel(), chosen);
  if (score.device != Device::kCpu) throw_no_device("select_top_k", score.device);
  require_finite("select_top_k", score);
  count_bytes(chosen * int64_t(sizeof(int32_t)));
  return cpu::select_top_k(index, chosen_begin, score, sequence_begin, capacity, scratch);
}

int64_t select_above(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, float offset) {
  const Work work("select_above", {.bytes = bytes_of(score, chosen_begin, sequence_begin)});
  check("select_above", chosen_begin, score, sequence_begin);
  require(index.numel() >= score.numel(), "select_above: index holds {} rows, expected {} or more", index.numel(),
          score.numel());
  require(!std::isnan(offset), "select_above: the offset is NaN, expected a number");
  if (score.device != Device::kCpu) throw_no_device("select_above", score.device);
  for (int64_t n = 0; n < score.numel(); n++)  // infinite is a clear answer: a threshold or an offset may be
    if (std::isnan(score[n])) fail_work("select_above: the score of row {} is NaN; the run has diverged", n);
  const int64_t chosen = cpu::select_above(index, chosen_begin, score, sequence_begin, offset);
  count_bytes(chosen * int64_t(sizeof(int32_t)));
  return chosen;
}

int64_t select_token(I32 index, I32 chosen_begin, CF32 score, CI32 sequence_begin, double capacity, int64_t& dropped) {
  const Work work("select_token", {.bytes = bytes_of(score, chosen_begin, sequence_begin)});
  check("select_token", chosen_begin, score, sequence_begin);
  if (score.device != Device::kCpu) throw_no_device("select_token", score.device);
  require_finite("select_token", score);
  int64_t chosen = 0;
  dropped = 0;
  for (int64_t s = 0; s + 1 < sequence_begin.numel(); s++) {
    chosen_begin[s] = int32_t(chosen);
    const int64_t most = chosen + capacity_rows(capacity, sequence_begin[s + 1] - sequence_begin[s]);
    require(index.numel() >= most, "select_token: index holds {} rows, expected {} or more", index.numel(), most);
    for (int32_t n = sequence_begin[s]; n < sequence_begin[s + 1]; n++) {
      if (!(score[n] > 0)) continue;
      if (chosen < most)
        index[chosen++] = n;
      else
        dropped++;
    }
  }
  chosen_begin[sequence_begin.numel() - 1] = int32_t(chosen);
  count_bytes(chosen * int64_t(sizeof(int32_t)));
  return chosen;
}

}  // namespace isobath
