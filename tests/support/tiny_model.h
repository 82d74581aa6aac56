// Models and batches small enough for the reference, in the hands of a test.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "model/network.h"
#include "model/weights.h"
#include "reference/network.h"
#include "tensor/batch.h"

namespace isobath::testing {

// Odd sizes, H*K unlike D, G < H.
inline ModelConfig tiny_config(int64_t L = 3) {
  ModelConfig c;
  c.vocab_size = 23;
  c.hidden_size = 20;
  c.intermediate_size = 28;
  c.num_hidden_layers = L;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 6;
  c.max_position_embeddings = 64;
  return c;
}
inline ModelConfig tiny_routed(double capacity = 0.4, int64_t L = 3) {
  ModelConfig c = tiny_config(L);
  c.routing.topology = Topology::kJoint;
  c.routing.capacity = {capacity};
  return c;
}

// ---- batches
// ----------------------------------------------------------------------------------------------------------

struct Sequence {
  int64_t id = 0;
  std::vector<std::vector<int32_t>> documents;
  int64_t rows() const {
    int64_t n = 0;
    for (const auto& document : documents) n += int64_t(document.size());
    return n;
  }
};

// Tokens are a pure function of seed, id and place.
inline Sequence random_sequence(int64_t id, const std::vector<int64_t>& document_lengths, int64_t V,
                                uint64_t seed = 5) {
  const Rng rng(seed, Stream::kBench);
  Sequence sequence{.id = id, .documents = {}};
  for (size_t d = 0; d < document_lengths.size(); d++) {
    sequence.documents.emplace_back();
    for (int64_t t = 0; t < document_lengths[d]; t++)
      sequence.documents.back().push_back(int32_t(rng.below(V, uint64_t(id), uint64_t(d) << 32 | uint64_t(t))));
  }
  return sequence;
}

// One document each.
inline std::vector<Sequence> random_sequences(const std::vector<int64_t>& lengths, int64_t V, uint64_t seed = 5) {
  std::vector<Sequence> sequences;
  for (const int64_t length : lengths)
    sequences.push_back(random_sequence(int64_t(sequences.size()) + 100, {length}, V, seed));
  return sequences;
}

// Owns what a Batch views. The target is the next token; the last row of a sequence is not scored, and with documents
// as attention segments the last row of each document is not.
class TinyBatch {
 public:
  TinyBatch(const std::vector<Sequence>& sequences, const ModelConfig& c) {
    capacity_begin_ = segment_begin_ = {0};
    const bool attend_document = c.routing.attention_scope == Scope::kDocument;
    const bool share_document = c.routing.capacity_scope == Scope::kDocument;
    for (size_t b = 0; b < sequences.size(); b++) {
      int32_t position = 0;
      for (const auto& document : sequences[b].documents) {
        if (attend_document) position = 0;
        for (const int32_t token : document) {
          if (position > 0) target_.back() = token;
          token_.push_back(token);
          target_.push_back(-1);
          position_.push_back(position++);
          sequence_.push_back(int32_t(b));
        }
        if (attend_document) segment_begin_.push_back(int32_t(token_.size()));
        if (share_document) capacity_begin_.push_back(int32_t(token_.size()));
      }
      if (!attend_document) segment_begin_.push_back(int32_t(token_.size()));
      if (!share_document) capacity_begin_.push_back(int32_t(token_.size()));
      id_.push_back(sequences[b].id);
    }
  }
  Batch view() const {
    return {of(token_),
            of(target_),
            of(position_),
            of(capacity_begin_),
            of(segment_begin_),
            of(sequence_),
            {id_.data(), {int64_t(id_.size())}}};
  }
  int64_t rows() const { return int64_t(token_.size()); }
  int64_t runs() const { return int64_t(capacity_begin_.size()) - 1; }
  int64_t targets() const {
    return int64_t(std::count_if(target_.begin(), target_.end(), [](int32_t t) { return t >= 0; }));
  }
  const std::vector<int32_t>& capacity_begin() const { return capacity_begin_; }

  std::vector<reference::Row> reference_rows() const {
    std::vector<reference::Row> rows;
    int32_t segment = 0;
    for (int32_t n = 0; n < int32_t(token_.size()); n++) {
      while (n >= segment_begin_[size_t(segment) + 1]) segment++;
      rows.push_back({token_[size_t(n)], target_[size_t(n)], position_[size_t(n)], segment});
    }
    return rows;
  }

 private:
  static CI32 of(const std::vector<int32_t>& v) { return {v.data(), {int64_t(v.size())}}; }
  std::vector<int32_t> token_, target_, position_, capacity_begin_, segment_begin_, sequence_;
  std::vector<int64_t> id_;
};

// ---- models
// -----------------------------------------------------------------------------------------------------------

// Values under which every part matters: scores and gates of size 1, norms and biases away from 1 and 0.
// A pure function of seed, name and place: models that share a weight's name share its values.
inline void randomize(WeightSet& set, uint64_t seed) {
  for (size_t i = 0; i < set.list().size(); i++) {
    const WeightInfo& info = set.list()[i];
    const Rng rng(seed, Stream::kBench, uint32_t(hash_bytes(info.name)));
    const bool norm = info.kind == Kind::kNorm;
    const bool vector = norm || info.bias;
    const double scale = vector ? 0.2 : 1 / std::sqrt(double(info.shape.cols()));
    for (int64_t j = 0; j < set.at(i).numel(); j++)
      set.at(i)[j] = float(norm ? 1 : 0) + float(scale) * rng.normal(uint64_t(j));
  }
}

inline void fill(const WeightSet& set, float value) {
  for (size_t i = 0; i < set.list().size(); i++) std::fill_n(set.at(i).data, set.at(i).numel(), value);
}

struct TinyModel {
  ModelConfig config;
  WeightSet weights, gradient;
  Activations acts;
  Products products;

  TinyModel(ModelConfig c, const BatchLimits& limits, Purpose purpose = Purpose::kTrain, uint64_t seed = 3,
            const MemoryOptions& memory = {})
      : config(resolved(c, limits.T)),
        weights(config),
        gradient(config),
        acts(config, limits, purpose, Allocate::kYes, memory),
        products(config, {.max_rows = limits.rows(),
                          .exact = acts.list_sizes(),
                          .head_rows = head_chunk(config, limits.rows()),
                          .backward = purpose == Purpose::kTrain,
                          .packing = memory.packing}) {
    randomize(weights, seed);
    products.pack(weights.weights());
  }

  // One whole step in one micro-batch, from zero gradients.
  double step(const TinyBatch& batch, const Selection& how = {}) {
    fill(gradient, 0);
    return add_step(batch, how, {.targets = batch.targets(), .rows = batch.rows(), .runs = batch.runs()});
  }
  double add_step(const TinyBatch& batch, const Selection& how, const StepScale& scale) {
    return forward_backward(weights.weights(), gradient.weights(), products, acts, config, batch.view(), how, scale);
  }
  double forward(const TinyBatch& batch, const Selection& how = {}) {
    forward_blocks(weights.weights(), products, acts, config, batch.view(), how);
    return forward_loss(weights.weights(), products, acts, config, batch.view());
  }
  RouterActs& router(int64_t l) { return acts.section[size_t(l)].router; }
  std::vector<float> gradients() const {
    std::vector<float> all;
    for (size_t i = 0; i < gradient.list().size(); i++)
      all.insert(all.end(), gradient.at(i).data, gradient.at(i).data + gradient.at(i).numel());
    return all;
  }
  // The rows that section l chose in the last pass.
  std::vector<int32_t> chosen(int64_t l) {
    const CI32 index = router(l).list.index;
    return {index.data, index.data + router(l).list.rows};
  }

 private:
  static ModelConfig resolved(ModelConfig c, int64_t T) {
    resolve(c, T);
    return c;
  }
};

// Room for these sequences.
inline BatchLimits limits_for(const std::vector<Sequence>& sequences) {
  BatchLimits limits{.sequences = int64_t(sequences.size()), .T = 1, .max_documents = 1};
  for (const Sequence& s : sequences) {
    limits.T = std::max(limits.T, s.rows());
    limits.max_documents = std::max(limits.max_documents, int64_t(s.documents.size()));
  }
  return limits;
}

// ---- the same in the reference's words
// ----------------------------------------------------------------------------------

inline reference::NetworkShape reference_shape(const ModelConfig& c) {
  return {.D = c.hidden_size,
          .F = c.intermediate_size,
          .V = c.vocab_size,
          .L = c.num_hidden_layers,
          .H = c.num_attention_heads,
          .G = c.num_key_value_heads,
          .K = c.head_dim,
          .eps = c.rms_norm_eps,
          .theta = c.rope_theta,
          .tied = c.tie_word_embeddings,
          .gate = reference::GateForm(int(c.routing.gate)),
          .normed_router = c.norms_router_input(),
          .all_keys = c.keeps_all_keys(),
          .experts_over_their_sum = c.has_experts() && !c.experts_choose() && c.experts.per_token == 2,
          .lookback = c.routing.predictor_lookback};
}

inline reference::NamedWeights<double> reference_weights(const WeightSet& set) {
  reference::NamedWeights<double> named;
  for (size_t i = 0; i < set.list().size(); i++)
    named[set.list()[i].name].assign(set.at(i).data, set.at(i).data + set.at(i).numel());
  return named;
}

// What the experts of section l took of the N rows in the last pass; nothing of rows that are not in the list.
inline std::vector<std::vector<reference::Taken>> taken_of(TinyModel& model, int64_t l, int64_t N) {
  std::vector<std::vector<reference::Taken>> taken;
  if (!model.config.has_experts()) return taken;
  taken.resize(size_t(N));
  if (!model.config.section(l).mlp()) return taken;
  const SectionActs& b = model.acts.section[size_t(l)];
  const int64_t O = model.config.experts.outputs();
  for (int64_t s = 0; s < b.list.rows; s++)
    for (int64_t o = 0; o < O; o++) {
      const int32_t at = b.experts.to.place.row(s)[o];
      taken[size_t(b.list.index.empty() ? s : b.list.index[s])].push_back(at >= 0 ? reference::Taken::kExpert
                                                                          : at == kNotChosen
                                                                              ? reference::Taken::kNot
                                                                              : reference::Taken::kNothing);
    }
  return taken;
}

// What the model's last pass chose. Scores are handed over only where they are no function of the weights.
inline std::vector<reference::Choice> choices_of(TinyModel& model, int64_t N) {
  std::vector<reference::Choice> choices;
  for (int64_t l = 0; l < model.config.sections(); l++) {
    const Section section = model.config.section(l);
    reference::Choice choice{.block = section.block,
                             .half = reference::Half(int(section.part)),
                             .routed = section.routed,
                             .chosen = std::vector<bool>(size_t(N)),
                             .score = {}};
    choice.taken = taken_of(model, l, N);
    if (choice.routed) {
      for (const int32_t n : model.chosen(l)) choice.chosen[size_t(n)] = true;
      const float* score = model.router(l).score.data;
      if (model.config.routing.router != Router::kLearned) choice.score.assign(score, score + N);
    }
    choices.push_back(choice);
  }
  return choices;
}

template <class T>
reference::Outcome<T> run_reference(TinyModel& model, const TinyBatch& batch,
                                    const reference::NamedWeights<T>& weights) {
  return reference::network(reference_shape(model.config), weights, batch.reference_rows(),
                            choices_of(model, batch.rows()));
}
inline reference::Outcome<double> run_reference(TinyModel& model, const TinyBatch& batch) {
  return run_reference<double>(model, batch, reference_weights(model.weights));
}

// Roundings one behind the other on the longest way through the model: the `count` of expect_close.
inline double roundings(const ModelConfig& c, int64_t T) {
  return double(c.num_hidden_layers * (2 * c.hidden_size + 2 * c.intermediate_size + T) + c.vocab_size);
}

}  // namespace isobath::testing
