// A mixture of experts in plain loops, as design section 3.5 writes it: scores, the choice, weights, losses.
// Sources: Jiang et al. 2024, arXiv:2401.04088; Fedus et al. 2021, arXiv:2101.03961; Zhou et al. 2022,
// arXiv:2202.09368.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

namespace isobath::reference {

// What a row has of an output: nothing, the expert's output, or a choice that adds nothing (a no-op; dropped).
enum class Taken : uint8_t { kNot, kExpert, kNothing };

// p of one row
template <class T>
std::vector<T> softmax(const std::vector<T>& logit) {
  using std::exp;
  std::vector<T> p;
  T sum = 0;
  for (const T& l : logit) sum += exp(l);
  for (const T& l : logit) p.push_back(exp(l) / sum);
  return p;
}

// The weights of one row's outputs; 0 of those that were not taken or add nothing.
template <class T>
std::vector<T> expert_weights(const std::vector<T>& p, const std::vector<Taken>& taken, bool over_their_sum) {
  T sum = over_their_sum ? T(0) : T(1);
  for (size_t o = 0; o < p.size() && over_their_sum; o++)
    if (taken[o] != Taken::kNot) sum += p[o];
  std::vector<T> weight(p.size(), T(0));
  for (size_t o = 0; o < p.size(); o++)
    if (taken[o] == Taken::kExpert) weight[o] = p[o] / sum;
  return weight;
}

// Outputs of one row from the best to the worst, the lower of equals first.
inline std::vector<size_t> ranked(const std::vector<double>& score) {
  std::vector<size_t> order(score.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return score[a] > score[b]; });
  return order;
}

struct TokenChoiceForm {
  size_t experts, per_row;
  double capacity_factor = 0, no_op_capacity = 0;
};

// Of one run of rows: logit[s] are the scores of row s.
inline std::vector<std::vector<Taken>> token_choice(const std::vector<std::vector<double>>& logit,
                                                    const TokenChoiceForm& form) {
  const double T = double(logit.size()), E = double(form.experts);
  const double room =
      form.capacity_factor > 0 ? std::ceil(form.capacity_factor * double(form.per_row) * T / E - 1e-9) : T;
  const double no_op_room = form.no_op_capacity > 0 ? std::floor(form.no_op_capacity * T + 1e-9) : T;
  std::vector<double> rows_of(form.experts, 0);
  double no_ops = 0;
  std::vector<std::vector<Taken>> taken;
  for (const auto& row : logit) {
    std::vector<Taken> mine(row.size(), Taken::kNot);
    std::vector<size_t> order = ranked(row);
    if (order[0] >= form.experts && no_ops >= no_op_room)
      std::erase_if(order, [&](size_t o) { return o >= form.experts; });
    for (size_t i = 0; i < form.per_row; i++) {
      const size_t o = order[i];
      if (o >= form.experts) {
        mine[o] = Taken::kNothing;
        no_ops++;
      } else {
        mine[o] = rows_of[o] < room ? Taken::kExpert : Taken::kNothing;
        if (rows_of[o] < room) rows_of[o]++;
      }
    }
    taken.push_back(mine);
  }
  return taken;
}

// O sum_o f_o P_o of the rows [begin, end); first[s] is the output that row s likes best.
template <class T>
T balance(const std::vector<std::vector<T>>& p, const std::vector<size_t>& first, size_t begin, size_t end) {
  const size_t O = p[begin].size();
  const double rows = double(end - begin);
  T sum = 0;
  for (size_t o = 0; o < O; o++) {
    double f = 0;
    T mean = 0;
    for (size_t s = begin; s < end; s++) f += first[s] == o, mean += p[s][o];
    sum += T(double(O) * f / rows / rows) * mean;
  }
  return sum;
}

// Mean over rows and experts of the cross-entropy of sigmoid(logit) with what was taken.
template <class T>
T imitation(const std::vector<std::vector<T>>& logit, const std::vector<std::vector<Taken>>& taken, size_t begin,
            size_t end) {
  using std::exp;
  using std::log;
  T sum = 0;
  for (size_t s = begin; s < end; s++)
    for (size_t e = 0; e < logit[s].size(); e++)
      sum += log(T(1) + exp(logit[s][e])) - (taken[s][e] == Taken::kExpert ? logit[s][e] : T(0));
  return sum / T(double((end - begin) * logit[begin].size()));
}

}  // namespace isobath::reference
