// A few numbers per row: plain code, rows in order.
#include <algorithm>
#include <array>

#include "ops/expert_choice.h"
#include "ops/select.h"

namespace isobath::cpu {
namespace {

constexpr int32_t kTaken = 0;  // in place, until the lists are written

// The best output of [begin, end), but for `without`; the lower of equals.
int64_t best(const float* score, int64_t begin, int64_t end, int64_t without = -1) {
  int64_t found = -1;
  for (int64_t o = begin; o < end; o++)
    if (o != without && (found < 0 || score[o] > score[found])) found = o;
  return found;
}

struct Run {
  std::array<int32_t, size_t(kMostExpertOutputs)> taken{};  // rows by expert
  int64_t no_ops = 0;
  int64_t most, most_no_ops;
};

// One row takes an expert, if there is room.
void take(int32_t* place, int64_t e, Run& run, ExpertTally& tally) {
  const bool room = run.taken[size_t(e)] < run.most;
  place[e] = room ? kTaken : kAddsNothing;
  run.taken[size_t(e)] += room;
  tally.dropped += !room;
}

void choose_row(int32_t* place, const float* logit, int64_t E, int64_t O, const TokenChoice& how, Run& run,
                ExpertTally& tally) {
  std::fill_n(place, O, kNotChosen);
  const int64_t first = best(logit, 0, E), no_op = best(logit, E, O);
  if (no_op >= 0 && logit[no_op] > logit[first] + how.depth && run.no_ops < run.most_no_ops) {
    place[no_op] = kAddsNothing;
    run.no_ops++;
    tally.no_ops++;
    return;
  }
  take(place, first, run, tally);
  if (how.per_row == 2) take(place, best(logit, 0, E, first), run, tally);
}

// Rows and places from the marks that choosing left.
void write_lists(const ExpertLists& to, ExpertTally& tally) {
  const int64_t E = to.experts(), S = to.place.shape[0];
  int32_t next = 0;
  for (int64_t e = 0; e < E; e++) {
    to.begin[e] = next;
    for (int64_t s = 0; s < S; s++) {
      int32_t& place = to.place.row(s)[e];
      if (place != kTaken) continue;
      to.row[next] = int32_t(s);
      place = next++;
    }
  }
  to.begin[E] = next;
  tally.assigned = next;
}

float chosen_sum(const float* p, const int32_t* place, int64_t O) {
  float sum = 0;
  for (int64_t o = 0; o < O; o++)
    if (place[o] != kNotChosen) sum += p[o];
  return sum;
}

void write_weights(const ExpertLists& to, CF32 p, ExpertWeight form) {
  const int64_t S = p.shape[0], O = p.cols();
  for (int64_t s = 0; s < S; s++) {
    const int32_t* place = to.place.row(s);
    const float over = form == ExpertWeight::kRaw ? 1 : chosen_sum(p.row(s), place, O);
    for (int64_t o = 0; o < O; o++)
      if (place[o] >= 0) to.weight[place[o]] = p.row(s)[o] / over;
  }
}

}  // namespace

ExpertTally choose_by_token(const ExpertLists& to, CF32 logit, CF32 p, CI32 run_begin, const TokenChoice& how) {
  const int64_t E = to.experts(), O = logit.cols();
  ExpertTally tally;
  for (int64_t r = 0; r + 1 < run_begin.numel(); r++) {
    const int64_t T = run_begin[r + 1] - run_begin[r];
    Run run{.most = kept_rows(how, E, T), .most_no_ops = kept_no_ops(how, T)};
    for (int64_t s = run_begin[r]; s < run_begin[r + 1]; s++)
      choose_row(to.place.row(s), logit.row(s), E, O, how, run, tally);
  }
  write_lists(to, tally);
  write_weights(to, p, how.per_row == 1 ? ExpertWeight::kRaw : ExpertWeight::kOverTheirSum);
  return tally;
}

ExpertTally choose_by_expert(const ExpertLists& to, CF32 p, CI32 run_begin, double capacity,
                             const ExpertChoiceScratch& scratch) {
  const int64_t E = to.experts(), S = p.shape[0];
  std::fill_n(to.place.data, to.place.numel(), kNotChosen);
  int64_t next = 0;
  for (int64_t e = 0; e < E; e++) {
    to.begin[e] = int32_t(next);
    for (int64_t s = 0; s < S; s++) scratch.score[s] = p.row(s)[e];
    const I32 rows = to.row.slice(next, to.row.numel() - next);
    const int64_t count = select_top_k(rows, scratch.chosen_begin, scratch.score, run_begin, capacity, scratch.select);
    for (int64_t i = 0; i < count; i++) to.place.row(rows[i])[e] = int32_t(next + i);
    next += count;
  }
  to.begin[E] = int32_t(next);
  write_weights(to, p, ExpertWeight::kRaw);
  return {.assigned = next};
}

ExpertTally choose_above(const ExpertLists& to, CF32 logit, CF32 p, CF32 offset, float depth) {
  for (int64_t s = 0; s < logit.shape[0]; s++)
    for (int64_t e = 0; e < logit.cols(); e++)
      to.place.row(s)[e] = logit.row(s)[e] + rule_offset(offset, e) + depth > 0 ? kTaken : kNotChosen;
  ExpertTally tally;
  write_lists(to, tally);
  write_weights(to, p, ExpertWeight::kRaw);
  return tally;
}

void expert_weights_backward(F32 dp, CF32 dweight, CF32 p, CI32 place, ExpertWeight form) {
  const int64_t S = p.shape[0], O = p.cols();
  for (int64_t s = 0; s < S; s++) {
    const int32_t* at = place.row(s);
    float* to = dp.row(s);
    for (int64_t o = 0; o < O; o++) to[o] = at[o] >= 0 ? dweight[at[o]] : 0;
    if (form == ExpertWeight::kRaw) continue;
    const float over = chosen_sum(p.row(s), at, O);
    float dot = 0;  // of the weights and their gradients
    for (int64_t o = 0; o < O; o++) dot += to[o] * (p.row(s)[o] / over);
    for (int64_t o = 0; o < O; o++) to[o] = at[o] == kNotChosen ? 0 : (to[o] - dot) / over;
  }
}

}  // namespace isobath::cpu
