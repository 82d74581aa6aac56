// Every weight's gradient of a whole step beside the reference's, with the selection fixed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "support/compare.h"
#include "support/tiny_model.h"

namespace isobath::testing {

using reference::NamedWeights;
using reference::Outcome;
using reference::Var;

struct Derivative {
  std::vector<double> value, terms;  // the sum over rows, and the sum of the magnitudes
};

// What row n adds to the loss of the step: cross-entropy, router's BCE, square of its score, predictor's BCE.
inline Var row_objective(const Outcome<Var>& out, size_t n, const ModelConfig& c, const StepScale& scale) {
  Var sum = out.loss[n] / Var(double(scale.targets));
  const double layers = double(std::max<int64_t>(1, c.routers())) * double(scale.rows);
  for (size_t l = 0; l < out.score.size(); l++) {
    if (c.routing.causal == Causal::kBce && !out.score_bce[l].empty())
      sum += out.score_bce[l][n] * Var(c.routing.aux_weight / layers);
    if (!out.score[l].empty()) sum += out.score[l][n] * out.score[l][n] * Var(c.routing.z_weight / layers);
    if (!out.predictor_bce[l].empty()) sum += out.predictor_bce[l][n] / Var(layers);
  }
  return sum;
}

// What a capacity run adds with choice = token: the squared distance of its mean probability from the capacity.
inline Var run_objective(const Outcome<Var>& out, const std::vector<int32_t>& run_begin, size_t run,
                         const ModelConfig& c) {
  Var sum = 0.0;
  for (size_t l = 0; l < out.score.size(); l++) {
    if (out.score[l].empty()) continue;
    Var mean = 0.0;
    const int32_t begin = run_begin[run], end = run_begin[run + 1];
    for (int32_t n = begin; n < end; n++) mean += reference::sigmoid(out.score[l][size_t(n)]);
    const Var distance = mean / Var(double(end - begin)) - Var(c.capacity(c.section(int64_t(l))));
    sum += distance * distance * Var(c.routing.balance_weight);
  }
  return sum / Var(double(c.routers()) * double(run_begin.size() - 1));
}

// What a capacity run adds with experts: the balance loss, or the cross-entropy of the experts' causal rule.
inline Var expert_objective(const Outcome<Var>& out, const std::vector<reference::Choice>& choices,
                            const std::vector<int32_t>& run_begin, size_t run, const ModelConfig& c) {
  Var sum = 0.0;
  for (size_t l = 0; l < out.experts.size(); l++) {
    std::vector<std::vector<Var>> logit, p;  // of the rows that the block has of this run
    std::vector<std::vector<reference::Taken>> taken;
    std::vector<size_t> first;
    for (size_t n = size_t(run_begin[run]); n < size_t(run_begin[run + 1]); n++) {
      if (choices[l].taken[n].empty()) continue;
      logit.push_back(out.experts[l].logit[n]);
      p.push_back(out.experts[l].p[n]);
      taken.push_back(choices[l].taken[n]);
      std::vector<double> values;
      for (const Var& v : logit.back()) values.push_back(v.value);
      first.push_back(reference::ranked(values)[0]);
    }
    if (p.empty()) continue;
    if (c.experts.choice == Choice::kToken)
      sum += reference::balance(p, first, 0, p.size()) * Var(c.experts.balance_weight);
    else if (c.experts.causal == Causal::kBce)
      sum += reference::imitation(logit, taken, 0, p.size()) * Var(c.experts.aux_weight);
  }
  return sum / Var(double(c.num_hidden_layers) * double(run_begin.size() - 1));
}

inline std::map<std::string, Derivative> reference_gradient(TinyModel& model, const TinyBatch& batch) {
  reference::tape().clear();
  NamedWeights<Var> weights;
  for (const auto& [name, values] : reference_weights(model.weights))
    for (const double value : values) weights[name].push_back(reference::input(value));
  const Outcome<Var> out = run_reference<Var>(model, batch, weights);
  std::map<std::string, Derivative> result;
  for (const auto& [name, values] : weights) {
    result[name].value.resize(values.size());
    result[name].terms.resize(values.size());
  }
  const StepScale scale{.targets = batch.targets(), .rows = batch.rows()};
  const auto add = [&](const Var& objective) {
    const std::vector<double> gradient = reference::tape().gradient(objective.id);
    for (const auto& [name, values] : weights)
      for (size_t i = 0; i < values.size(); i++) {
        result[name].value[i] += gradient[size_t(values[i].id)];
        result[name].terms[i] += std::abs(gradient[size_t(values[i].id)]);
      }
  };
  for (size_t n = 0; n < size_t(batch.rows()); n++) add(row_objective(out, n, model.config, scale));
  if (model.config.routing.choice == Choice::kToken)
    for (size_t run = 0; run < size_t(batch.runs()); run++)
      add(run_objective(out, batch.capacity_begin(), run, model.config));
  if (model.config.has_experts())
    for (size_t run = 0; run < size_t(batch.runs()); run++)
      add(expert_objective(out, choices_of(model, batch.rows()), batch.capacity_begin(), run, model.config));
  return result;
}

// Of the gradients that model.step(batch) left.
inline void expect_reference_gradients(TinyModel& model, const TinyBatch& batch) {
  const auto want = reference_gradient(model, batch);
  ASSERT_EQ(want.size(), model.gradient.list().size());
  // A softmax over one key has no gradient, as the difference of equal numbers: terms no row's sum shows.
  double least_terms = 0;
  for (const auto& [name, derivative] : want)
    for (const double terms : derivative.terms) least_terms = std::max(least_terms, 1e-3 * terms);
  for (size_t i = 0; i < model.gradient.list().size(); i++) {
    const std::string& name = model.gradient.list()[i].name;
    const F32 got = model.gradient.at(i);
    const Derivative& judge = want.at(name);
    const double terms = std::max(least_terms, *std::max_element(judge.terms.begin(), judge.terms.end()));
    expect_close(std::vector<float>(got.data, got.data + got.numel()), judge.value, terms,
                 roundings(model.config, batch.rows()), name.c_str());
  }
}

}  // namespace isobath::testing
