#include "model/selection_rule.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "ops/select.h"

namespace isobath {
namespace {

using Rules = std::map<std::string, SelectionRule, std::less<>>;

Rules& rules() {
  static Rules all{{"top_k", nullptr}};
  return all;
}

// Ascending, and different rows of the run.
void put_in_order(std::span<int32_t> chosen, int64_t rows) {
  std::sort(chosen.begin(), chosen.end());
  require(chosen.front() >= 0 && chosen.back() < rows, "a selection rule chose row {} of a run of {} rows",
          chosen.front() < 0 ? chosen.front() : chosen.back(), rows);
  const auto twice = std::adjacent_find(chosen.begin(), chosen.end());
  require(twice == chosen.end(), "a selection rule chose row {} of a run twice", twice == chosen.end() ? 0 : *twice);
}

}  // namespace

void add_selection_rule(const std::string& name, SelectionRule rule) {
  require(rule != nullptr, "the selection rule {} is null", name);
  require(rules().emplace(name, rule).second, "there is a selection rule {} already", name);
}

SelectionRule find_selection_rule(std::string_view name) {
  const auto found = rules().find(name);
  if (found != rules().end()) return found->second;
  std::string known;
  for (const auto& [each, rule] : rules()) known += (known.empty() ? "" : ", ") + each;
  fail("routing.select is {}, expected one of the rules that this program knows: {}", name, known);
}

int64_t select_by_rule(I32 index, I32 chosen_begin, SelectionRule rule, CF32 score, const Batch& batch, double capacity,
                       I32 scratch) {
  for (int64_t n = 0; n < score.numel(); n++)
    if (!std::isfinite(score[n])) fail_work("the score of row {} is {}, expected a finite number", n, score[n]);
  int32_t count = 0;
  for (int64_t s = 0; s + 1 < batch.capacity_begin.numel(); s++) {
    const int32_t begin = batch.capacity_begin[s], rows = batch.capacity_begin[s + 1] - begin;
    const size_t T = size_t(rows), k = size_t(capacity_rows(capacity, rows));
    chosen_begin[s] = count;
    if (k == 0) continue;
    const std::span<int32_t> chosen(index.data + count, k);
    rule(chosen, {.score = {score.data + begin, T},
                  .position = {batch.position.data + begin, T},
                  .scratch = {scratch.data + begin, T}});
    put_in_order(chosen, rows);
    for (int32_t& row : chosen) row += begin;
    count += int32_t(k);
  }
  chosen_begin[batch.capacity_begin.numel() - 1] = count;
  return count;
}

}  // namespace isobath
