// The whole model in plain loops: what the program computes, as design sections 3.1 to 3.3 write it. No lists, no
// gathers, no chunks: a routed block is a MASKED DENSE one. All rows go through it, the rows that were not chosen are
// hidden from attention, and what comes out for them is dropped. Positions are never touched.
//
// The choice of rows is an input, so that derivatives with the choice held fixed are those of an analytic formula.
// Templated on the scalar: double, Complex (one exact derivative), Var (all derivatives).
// Sources: Raposo et al. 2024, arXiv:2404.02258 (routing); Touvron et al. 2023, arXiv:2302.13971 (the block).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "reference/experts.h"
#include "reference/gradient.h"
#include "reference/tape.h"

namespace isobath::reference {

enum class GateForm { kRaw, kSigmoid, kTanh };

struct NetworkShape {
  int64_t D, F, V, L, H, G, K;
  double eps, theta;
  bool tied = false;
  GateForm gate = GateForm::kRaw;
  bool normed_router = false;
  bool all_keys = false;  // routed rows see the keys of rows that were left out
  bool experts_over_their_sum = false;
  int64_t lookback = 0;  // blocks: the predictor reads the input of an earlier one
};

// Weights by the names of the files, row-major.
template <class T>
using NamedWeights = std::map<std::string, Vec<T>>;

// One row of a batch. Rows with the same `segment` may see each other; target -1 is not scored.
struct Row {
  int32_t token, target, position, segment;
};

// What lies between two residual adds: a block, or the half of one.
enum class Half { kNone, kAttention, kMlp };
// What a section is told: who is chosen, if it is routed. `score` is for routers without weights (random ones).
struct Choice {
  int64_t block = 0;
  Half half = Half::kNone;
  bool routed = false;
  std::vector<bool> chosen;                    // (N)
  Vec<double> score;                           // (N), or empty: <w, x> + b
  std::vector<std::vector<Taken>> taken = {};  // (N,O) of rows that are chosen, with experts
};

// Of a block's experts, by row.
template <class T>
struct ExpertScores {
  std::vector<Vec<T>> logit, p;  // (N,O); empty without experts
};

template <class T>
struct Outcome {
  std::vector<Vec<T>> score, gate;       // per section (N); empty in dense ones
  std::vector<Vec<T>> score_bce;         // per section (N): BCE of the router's score against the choice
  std::vector<Vec<T>> predicted;         // per section (N): the predictor's logit
  std::vector<Vec<T>> predictor_bce;     // per section (N)
  std::vector<ExpertScores<T>> experts;  // per section
  std::vector<Vec<T>> x;                 // per section (N*D): the residual stream after it
  Vec<T> loss, entropy;                  // (N), nats
};

// ---- scalars
// ----------------------------------------------------------------------------------------------------------

inline double stop_gradient(double x) { return x; }
inline Complex stop_gradient(Complex x) { return x.real(); }
inline Var stop_gradient(Var x) { return x.value; }

template <class T>
T sigmoid(T x) {
  using std::exp;
  return T(1) / (T(1) + exp(-x));
}

template <class T>
T gate_of(T r, GateForm form) {
  if (form == GateForm::kSigmoid) return sigmoid(r);
  if (form == GateForm::kTanh) return T(2) * sigmoid(T(2) * r) - T(1);
  return r;
}

// -[target log sigmoid(r) + (1 - target) log(1 - sigmoid(r))]
template <class T>
T binary_cross_entropy(T r, bool target) {
  using std::exp;
  using std::log;
  return log(T(1) + exp(r)) - (target ? r : T(0));
}

// ---- layers: a matrix of N rows is one vector
// ---------------------------------------------------------------------------

// y[n,i] = sum_j x[n,j] W[i,j]
template <class T>
Vec<T> product(const Vec<T>& x, const Vec<T>& W, int64_t N) {
  const int64_t in = int64_t(x.size()) / N, out = int64_t(W.size()) / in;
  Vec<T> y(size_t(N * out));
  for (int64_t n = 0; n < N; n++)
    for (int64_t i = 0; i < out; i++) {
      T sum = 0;
      for (int64_t j = 0; j < in; j++) sum += x[size_t(n * in + j)] * W[size_t(i * in + j)];
      y[size_t(n * out + i)] = sum;
    }
  return y;
}

template <class T>
Vec<T> sum_of(const Vec<T>& a, const Vec<T>& b) {
  Vec<T> y(a.size());
  for (size_t i = 0; i < a.size(); i++) y[i] = a[i] + b[i];
  return y;
}

// y[n] = x[n] / sqrt(mean(x[n]^2) + eps) * weight
template <class T>
Vec<T> rms_norm(const Vec<T>& x, const Vec<T>& weight, double eps) {
  using std::sqrt;
  const size_t D = weight.size();
  Vec<T> y(x.size());
  for (size_t n = 0; n < x.size(); n += D) {
    T squares = 0;
    for (size_t d = 0; d < D; d++) squares += x[n + d] * x[n + d];
    const T rms = sqrt(squares / T(double(D)) + T(eps));
    for (size_t d = 0; d < D; d++) y[n + d] = x[n + d] / rms * weight[d];
  }
  return y;
}

// Rotates each head's pair (i, i + K/2) by position * theta^(-2i/K).
template <class T>
void rotate(Vec<T>& x, const std::vector<Row>& rows, const NetworkShape& s) {
  const int64_t width = int64_t(x.size() / rows.size());
  for (size_t n = 0; n < rows.size(); n++)
    for (int64_t head = 0; head < width / s.K; head++)
      for (int64_t i = 0; i < s.K / 2; i++) {
        const double angle = rows[n].position * std::pow(s.theta, -2.0 * double(i) / double(s.K));
        T& first = x[n * size_t(width) + size_t(head * s.K + i)];
        T& second = x[n * size_t(width) + size_t(head * s.K + i + s.K / 2)];
        const T u = first, v = second;
        first = u * T(std::cos(angle)) - v * T(std::sin(angle));
        second = v * T(std::cos(angle)) + u * T(std::sin(angle));
      }
}

// Row i sees itself and the earlier chosen rows of its segment. Scores are small here, so softmax is the bare formula.
template <class T>
Vec<T> attention(const Vec<T>& q, const Vec<T>& k, const Vec<T>& v, const std::vector<Row>& rows,
                 const std::vector<bool>& chosen, const NetworkShape& s) {
  using std::exp;
  Vec<T> o(q.size(), T(0));
  for (size_t i = 0; i < rows.size(); i++)
    for (int64_t h = 0; h < s.H; h++) {
      const size_t qi = i * size_t(s.H * s.K) + size_t(h * s.K);
      const size_t shared = size_t(h / (s.H / s.G) * s.K);  // the key/value head that query head h reads
      T total = 0;
      for (size_t j = 0; j <= i; j++) {
        if (rows[j].segment != rows[i].segment || (j != i && !chosen[j] && !s.all_keys)) continue;
        const size_t kj = j * size_t(s.G * s.K) + shared;
        T dot = 0;
        for (int64_t d = 0; d < s.K; d++) dot += q[qi + size_t(d)] * k[kj + size_t(d)];
        const T weight = exp(dot / T(std::sqrt(double(s.K))));
        total += weight;
        for (int64_t d = 0; d < s.K; d++) o[qi + size_t(d)] += weight * v[kj + size_t(d)];
      }
      for (int64_t d = 0; d < s.K; d++) o[qi + size_t(d)] = o[qi + size_t(d)] / total;
    }
  return o;
}

// w2 (silu(w1 h) * w3 h)
template <class T>
Vec<T> swiglu_mlp(const Vec<T>& h, const Vec<T>& w1, const Vec<T>& w3, const Vec<T>& w2, int64_t N) {
  Vec<T> gate = product(h, w1, N);
  const Vec<T> up = product(h, w3, N);
  for (size_t i = 0; i < gate.size(); i++) gate[i] = gate[i] * sigmoid(gate[i]) * up[i];
  return product(gate, w2, N);
}

// Every expert over every row; a row keeps what `taken` says.
template <class T>
Vec<T> experts_mlp(const Vec<T>& h, const std::string& prefix, const NamedWeights<T>& w, int64_t N,
                   const std::vector<std::vector<Taken>>& taken, bool over_their_sum, ExpertScores<T>& scores) {
  const Vec<T> logit = product(h, w.at(prefix + "gate.weight"), N);
  const size_t O = logit.size() / size_t(N), D = h.size() / size_t(N);
  for (size_t n = 0; n < size_t(N); n++) {
    scores.logit.emplace_back(logit.begin() + long(n * O), logit.begin() + long((n + 1) * O));
    scores.p.push_back(softmax(scores.logit.back()));
  }
  Vec<T> m(h.size(), T(0));
  for (size_t e = 0; w.contains(prefix + "experts." + std::to_string(e) + ".w1.weight"); e++) {
    const auto weight = [&](const char* name) -> const Vec<T>& {
      return w.at(prefix + "experts." + std::to_string(e) + "." + name + ".weight");
    };
    const Vec<T> out = swiglu_mlp(h, weight("w1"), weight("w3"), weight("w2"), N);
    for (size_t n = 0; n < size_t(N); n++) {
      if (taken[n].empty() || taken[n][e] != Taken::kExpert) continue;
      const T weight_of_row = expert_weights(scores.p[n], taken[n], over_their_sum)[e];
      for (size_t d = 0; d < D; d++) m[n * D + d] += weight_of_row * out[n * D + d];
    }
  }
  return m;
}

template <class T>
Vec<T> attention_delta(const Vec<T>& x, const std::string& prefix, const NamedWeights<T>& w,
                       const std::vector<Row>& rows, const std::vector<bool>& chosen, const NetworkShape& s) {
  const int64_t N = int64_t(rows.size());
  const auto weight = [&](const char* name) -> const Vec<T>& { return w.at(prefix + name + ".weight"); };
  const Vec<T> h1 = rms_norm(x, weight("input_layernorm"), s.eps);
  Vec<T> q = product(h1, weight("self_attn.q_proj"), N), k = product(h1, weight("self_attn.k_proj"), N);
  const Vec<T> v = product(h1, weight("self_attn.v_proj"), N);
  rotate(q, rows, s);
  rotate(k, rows, s);
  return product(attention(q, k, v, rows, chosen, s), weight("self_attn.o_proj"), N);
}

template <class T>
Vec<T> mlp_delta(const Vec<T>& x, const std::string& prefix, const NamedWeights<T>& w, int64_t N, const NetworkShape& s,
                 const Choice& choice, ExpertScores<T>& experts) {
  const auto weight = [&](const char* name) -> const Vec<T>& { return w.at(prefix + name + ".weight"); };
  const Vec<T> h2 = rms_norm(x, weight("post_attention_layernorm"), s.eps);
  if (w.contains(prefix + "block_sparse_moe.gate.weight"))
    return experts_mlp(h2, prefix + "block_sparse_moe.", w, N, choice.taken, s.experts_over_their_sum, experts);
  return swiglu_mlp(h2, weight("mlp.gate_proj"), weight("mlp.up_proj"), weight("mlp.down_proj"), N);
}

// What the section adds to its rows before any gate: a + m of a whole block.
template <class T>
Vec<T> section_delta(const Vec<T>& x, const std::string& prefix, const NamedWeights<T>& w, const std::vector<Row>& rows,
                     const std::vector<bool>& chosen, const NetworkShape& s, const Choice& choice,
                     ExpertScores<T>& experts) {
  const int64_t N = int64_t(rows.size());
  if (choice.half == Half::kMlp) return mlp_delta(x, prefix, w, N, s, choice, experts);
  const Vec<T> a = attention_delta(x, prefix, w, rows, chosen, s);
  return choice.half == Half::kAttention ? a : sum_of(a, mlp_delta(sum_of(x, a), prefix, w, N, s, choice, experts));
}

// ---- routing
// ------------------------------------------------------------------------------------------------------------

// p = w2 silu(W1 x + b1) + b2, of an x that passes no gradient on
template <class T>
Vec<T> predictor(const Vec<T>& x, const std::string& prefix, const NamedWeights<T>& w, int64_t N) {
  Vec<T> still(x.size());
  for (size_t i = 0; i < x.size(); i++) still[i] = stop_gradient(x[i]);
  Vec<T> hidden = product(still, w.at(prefix + "fc1.weight"), N);
  const Vec<T>& b1 = w.at(prefix + "fc1.bias");
  for (size_t i = 0; i < hidden.size(); i++) {
    hidden[i] += b1[i % b1.size()];
    hidden[i] = hidden[i] * sigmoid(hidden[i]);
  }
  Vec<T> p = product(hidden, w.at(prefix + "fc2.weight"), N);
  for (T& logit : p) logit += w.at(prefix + "fc2.bias")[0];
  return p;
}

template <class T>
Vec<T> scores_of(const Vec<T>& x, const std::string& prefix, const NamedWeights<T>& w, const Choice& choice, int64_t N,
                 const NetworkShape& s) {
  if (!choice.score.empty()) return Vec<T>(choice.score.begin(), choice.score.end());
  const Vec<T> ones(size_t(s.D), T(1));
  Vec<T> r = product(s.normed_router ? rms_norm(x, ones, s.eps) : x, w.at(prefix + "router.weight"), N);
  if (const auto bias = w.find(prefix + "router.bias"); bias != w.end())
    for (T& score : r) score += bias->second[0];
  return r;
}

// The rows of each run with the largest scores, earlier rows first among equals: what top-k has to choose.
inline std::vector<bool> top_k(const Vec<double>& score, const std::vector<int32_t>& run_begin, double capacity) {
  std::vector<bool> chosen(score.size());
  for (size_t run = 0; run + 1 < run_begin.size(); run++) {
    std::vector<int32_t> order(size_t(run_begin[run + 1] - run_begin[run]));
    std::iota(order.begin(), order.end(), run_begin[run]);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return score[size_t(a)] > score[size_t(b)]; });
    const size_t k = size_t(std::max(1.0, std::floor(capacity * double(order.size()) + 1e-9)));
    for (size_t i = 0; i < std::min(k, order.size()); i++) chosen[size_t(order[i])] = true;
  }
  return chosen;
}

// ---- the network
// --------------------------------------------------------------------------------------------------------

template <class T>
void head_and_loss(Outcome<T>& out, const Vec<T>& x, const NamedWeights<T>& w, const std::vector<Row>& rows,
                   const NetworkShape& s) {
  using std::exp;
  using std::log;
  const int64_t N = int64_t(rows.size());
  const Vec<T> normed = rms_norm(x, w.at("model.norm.weight"), s.eps);
  const Vec<T> logits = product(normed, w.at(s.tied ? "model.embed_tokens.weight" : "lm_head.weight"), N);
  for (int64_t n = 0; n < N; n++) {
    const T* z = &logits[size_t(n * s.V)];
    T total = 0, mean_logit = 0;
    for (int64_t v = 0; v < s.V; v++) total += exp(z[v]);
    for (int64_t v = 0; v < s.V; v++) mean_logit += exp(z[v]) / total * z[v];
    const int32_t target = rows[size_t(n)].target;
    out.entropy.push_back(log(total) - mean_logit);
    out.loss.push_back(target < 0 ? T(0) : log(total) - z[target]);
  }
}

template <class T>
Outcome<T> network(const NetworkShape& s, const NamedWeights<T>& w, const std::vector<Row>& rows,
                   const std::vector<Choice>& choices) {
  const int64_t N = int64_t(rows.size());
  Vec<T> x;  // (N,D)
  for (const Row& row : rows)
    for (int64_t d = 0; d < s.D; d++) x.push_back(w.at("model.embed_tokens.weight")[size_t(row.token * s.D + d)]);

  Outcome<T> out;
  std::vector<Vec<T>> block_input;
  for (const Choice& choice : choices) {
    if (choice.half != Half::kMlp) block_input.push_back(x);
    const std::string prefix = "model.layers." + std::to_string(choice.block) + ".";
    const std::string router = prefix + (choice.half == Half::kAttention ? "self_attn."
                                         : choice.half == Half::kMlp     ? "mlp."
                                                                         : "");
    const std::vector<bool> chosen = choice.routed ? choice.chosen : std::vector<bool>(size_t(N), true);
    Vec<T> score, gate, score_bce, predicted, predictor_bce;
    if (choice.routed) {
      score = scores_of(x, router, w, choice, N, s);
      const int64_t read = choice.block - std::min(s.lookback, choice.block);
      if (w.contains(router + "predictor.fc1.weight"))
        predicted = predictor(s.lookback > 0 ? block_input[size_t(read)] : x, router + "predictor.", w, N);
      for (size_t n = 0; n < size_t(N); n++) {
        gate.push_back(gate_of(score[n], s.gate));
        score_bce.push_back(binary_cross_entropy(score[n], chosen[n]));
        if (!predicted.empty()) predictor_bce.push_back(binary_cross_entropy(predicted[n], chosen[n]));
      }
    }
    ExpertScores<T> experts;
    const Vec<T> delta = section_delta(x, prefix, w, rows, chosen, s, choice, experts);
    for (int64_t n = 0; n < N; n++)
      for (int64_t d = 0; d < s.D && chosen[size_t(n)]; d++) {
        const size_t i = size_t(n * s.D + d);
        x[i] += choice.routed ? gate[size_t(n)] * delta[i] : delta[i];
      }
    out.score.push_back(score);
    out.gate.push_back(gate);
    out.score_bce.push_back(score_bce);
    out.predicted.push_back(predicted);
    out.predictor_bce.push_back(predictor_bce);
    out.experts.push_back(experts);
    out.x.push_back(x);
  }
  head_and_loss(out, x, w, rows, s);
  return out;
}

}  // namespace isobath::reference
