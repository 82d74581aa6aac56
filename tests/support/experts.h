// Scores and lists of a mixture of experts in the hands of a test of its ops.
#pragma once

#include <vector>

#include "ops/expert_choice.h"
#include "reference/experts.h"
#include "support/compare.h"
#include "support/rows.h"

namespace isobath::testing {

using Table = std::vector<std::vector<double>>;  // a row of outputs for each row

inline Table table_of(const Buffer& b) {
  Table rows;
  for (int64_t s = 0; s < b.shape[0]; s++) rows.emplace_back(b.view().row(s), b.view().row(s) + b.shape[1]);
  return rows;
}

inline Buffer softmax_of(const Buffer& logit) {
  Buffer p(logit.shape);
  const Table rows = table_of(logit);
  for (int64_t s = 0; s < logit.shape[0]; s++) {
    const std::vector<double> row = reference::softmax(rows[size_t(s)]);
    for (int64_t o = 0; o < logit.shape[1]; o++) p[s * logit.shape[1] + o] = float(row[size_t(o)]);
  }
  return p;
}

// Lists with room for everything, which nobody wrote yet.
struct Lists {
  List place, row, begin;
  Buffer weight;
  int64_t outputs;
  Lists(int64_t S, int64_t E, int64_t O)
      : place(S * O, -99), row(S * O, -99), begin(E + 1, -99), weight({S * O}), outputs(O) {}
  operator ExpertLists() {
    return {
        .place = I32(place).reshaped({place.size() / outputs, outputs}), .row = row, .begin = begin, .weight = weight};
  }
  CI32 places() { return I32(place).reshaped({place.size() / outputs, outputs}); }
  reference::Taken taken(int64_t s, int64_t o) const {
    const int32_t at = place[s * outputs + o];
    return at >= 0 ? reference::Taken::kExpert : at == kNotChosen ? reference::Taken::kNot : reference::Taken::kNothing;
  }
  std::vector<std::vector<reference::Taken>> taken() const {
    std::vector<std::vector<reference::Taken>> all;
    for (int64_t s = 0; s < place.size() / outputs; s++) {
      all.emplace_back();
      for (int64_t o = 0; o < outputs; o++) all.back().push_back(taken(s, o));
    }
    return all;
  }
};

}  // namespace isobath::testing
