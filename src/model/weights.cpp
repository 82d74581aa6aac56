#include "model/weights.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "model/activations.h"

namespace isobath {
namespace {

void visit_section(const ModelConfig& c, const Section& section, SectionWeights& b, const VisitWeight& visit) {
  const int64_t D = c.hidden_size, F = c.intermediate_size, P = c.predictor_width();
  const Heads heads = c.heads();
  const int64_t l = section.index;
  std::string prefix = "model.layers." + std::to_string(section.block) + ".";
  const auto add = [&](const char* name, Shape shape, Kind kind, F32& view) {
    visit({.name = prefix + name, .shape = shape, .kind = kind, .section = l}, view);
  };
  const auto add_adjacent = [&](const char* name, Shape shape, F32& view) {
    visit({.name = prefix + name, .shape = shape, .kind = Kind::kMatrix, .section = l, .adjacent = true}, view);
  };
  const auto add_bias = [&](const char* name, Shape shape, Kind kind, F32& view) {
    visit({.name = prefix + name, .shape = shape, .kind = kind, .section = l, .bias = true}, view);
  };
  if (section.attention()) {
    add("input_layernorm.weight", {D}, Kind::kNorm, b.norm1);
    add("self_attn.q_proj.weight", {heads.q_cols(), D}, Kind::kMatrix, b.q);
    add_adjacent("self_attn.k_proj.weight", {heads.kv_cols(), D}, b.k);
    add_adjacent("self_attn.v_proj.weight", {heads.kv_cols(), D}, b.v);
    add("self_attn.o_proj.weight", {D, heads.q_cols()}, Kind::kOutput, b.o);
  }
  if (section.mlp()) add("post_attention_layernorm.weight", {D}, Kind::kNorm, b.norm2);
  if (section.mlp() && c.has_experts()) {  // names and order of Mixtral: w1 gates, w3 is up, w2 down
    add("block_sparse_moe.gate.weight", {c.experts.outputs(), D}, Kind::kRouter, b.expert_router);
    if (c.experts.offset) add_bias("block_sparse_moe.gate.offset", {c.experts.experts}, Kind::kRule, b.expert_offset);
    b.expert.resize(size_t(c.experts.experts));
    for (size_t e = 0; e < b.expert.size(); e++) {
      const std::string expert = "block_sparse_moe.experts." + std::to_string(e) + ".";
      add((expert + "w1.weight").c_str(), {F, D}, Kind::kMatrix, b.expert[e].gate);
      add_adjacent((expert + "w3.weight").c_str(), {F, D}, b.expert[e].up);
      add((expert + "w2.weight").c_str(), {D, F}, Kind::kOutput, b.expert[e].down);
    }
  } else if (section.mlp()) {
    add("mlp.gate_proj.weight", {F, D}, Kind::kMatrix, b.gate);
    add_adjacent("mlp.up_proj.weight", {F, D}, b.up);
    add("mlp.down_proj.weight", {D, F}, Kind::kOutput, b.down);
  }
  if (!section.routed) return;
  if (section.part != Part::kBlock) prefix += section.part == Part::kAttention ? "self_attn." : "mlp.";
  RouterWeights& r = b.router;
  if (c.routing.router_offset) add_bias("router.offset", {1}, Kind::kRule, r.offset);
  if (c.routing.router != Router::kLearned) return;
  add("router.weight", {D}, Kind::kRouter, r.w);
  if (c.routing.router_bias) add_bias("router.bias", {1}, Kind::kRouter, r.bias);
  if (c.has_threshold()) add_bias("router.threshold", {1}, Kind::kRule, r.threshold);
  if (!c.has_predictor()) return;
  add("predictor.fc1.weight", {P, D}, Kind::kPredictor, r.fc1);
  add_bias("predictor.fc1.bias", {P}, Kind::kPredictor, r.fc1_bias);
  add("predictor.fc2.weight", {1, P}, Kind::kPredictor, r.fc2);
  add_bias("predictor.fc2.bias", {1}, Kind::kPredictor, r.fc2_bias);
}

// The standard deviation of a weight's start value; 0: it starts as a constant.
double start_deviation(const WeightInfo& info, int64_t L) {
  if (info.bias) return 0;
  const double fan_in = double(info.shape.cols());
  switch (info.kind) {
    case Kind::kMatrix:
      return 1 / std::sqrt(fan_in);
    case Kind::kOutput:
      return 1 / std::sqrt(fan_in) / std::sqrt(2.0 * double(L));
    case Kind::kEmbedding:
      return 1 / std::sqrt(fan_in);
    case Kind::kRouter:
      return 0.02;
    case Kind::kPredictor:
      return 1 / std::sqrt(fan_in);
    case Kind::kNorm:
    case Kind::kRule:
      return 0;
  }
  return 0;
}

}  // namespace

void for_each_weight(const ModelConfig& c, Weights& w, const VisitWeight& visit) {
  const int64_t D = c.hidden_size, V = c.vocab_size;
  w.section.resize(size_t(c.sections()));
  visit({"model.embed_tokens.weight", {V, D}, Kind::kEmbedding}, w.embed);
  for (int64_t l = 0; l < c.sections(); l++) visit_section(c, c.section(l), w.section[size_t(l)], visit);
  visit({"model.norm.weight", {D}, Kind::kNorm}, w.norm);
  if (!c.tie_word_embeddings) visit({"lm_head.weight", {V, D}, Kind::kMatrix}, w.head);
}

WeightSet::WeightSet(const ModelConfig& config, Allocate allocate, Matrices matrices) : config_(config) {
  Plan plan;
  for_each_weight(config_, weights_, [&](const WeightInfo& info, F32& view) {
    place_[&view] = list_.size();
    fields_.push_back(&view);
    if (matrices == Matrices::kInFile && is_matrix(info.kind))
      view = {nullptr, info.shape};
    else if (info.adjacent)
      plan.add_adjacent(info.name, view, info.shape);
    else
      plan.add(info.name, view, info.shape);
    list_.push_back(info);
  });
  bytes_ = plan.bytes();
  if (allocate == Allocate::kYes) arena_ = Arena(plan);
  for_each_weight(config_, weights_, [&](const WeightInfo&, F32& view) { views_.push_back(view); });
}

void WeightSet::lend(size_t i, const float* data) { views_[i].data = fields_[i]->data = const_cast<float*>(data); }

int64_t WeightSet::numel() const {
  int64_t n = 0;
  for (const WeightInfo& info : list_) n += info.shape.numel();
  return n;
}

int64_t count_weights(const ModelConfig& config) {
  Weights unbound;
  int64_t n = 0;
  for_each_weight(config, unbound, [&](const WeightInfo& info, F32&) { n += info.shape.numel(); });
  return n;
}

void initialize(WeightSet& set, uint64_t seed) {
  for (size_t i = 0; i < set.list().size(); i++) {
    const WeightInfo& info = set.list()[i];
    const F32 w = set.at(i);
    const float deviation = float(start_deviation(info, set.config().num_hidden_layers));
    const float constant = info.kind == Kind::kNorm ? 1.0f : 0.0f;
    const Rng rng(seed, Stream::kInit, uint32_t(hash_bytes(info.name)));
    parallel_for(w.numel(), 1 << 12,
                 [&](int64_t j) { w[j] = deviation == 0 ? constant : deviation * rng.normal(uint64_t(j)); });
  }
}

Products::Products(const ModelConfig& c, const Sizes& sizes, Allocate allocate) : section_(size_t(c.sections())) {
  const Heads heads = c.heads();
  const int64_t D = c.hidden_size, F = c.intermediate_size;
  Plan plan;
  const auto linear_sizes = [&](int64_t rows, std::span<const int64_t> exact, int64_t N, int64_t K, PackingRoom& room) {
    return Linear::Sizes{.N = N,
                         .K = K,
                         .max_rows = rows,
                         .exact = exact,
                         .backward = sizes.backward,
                         .room = sizes.packing == Packing::kProduct ? &room : nullptr};
  };
  const auto add_up_to = [&](int64_t rows, std::span<const int64_t> exact, Product& product, const std::string& name,
                             int64_t N, int64_t K, PackingRoom& room) {
    if (!sizes.frozen) return product.plan(plan, name, linear_sizes(rows, exact, N, K, room));
    product.plan(plan, name, FrozenLinear::Sizes{.N = N, .K = K, .max_rows = rows, .format = *sizes.frozen});
  };
  const auto add = [&](Product& product, const std::string& name, int64_t N, int64_t K, PackingRoom& room) {
    add_up_to(sizes.max_rows, sizes.exact, product, name, N, K, room);
  };
  for (int64_t l = 0; l < c.sections(); l++) {
    const Section section = c.section(l);
    SectionProducts& b = section_[size_t(l)];
    const std::string prefix = "packed." + std::to_string(l) + ".";
    if (c.has_predictor() && section.routed)
      b.fc1.plan(plan, prefix + "fc1", linear_sizes(sizes.max_rows, sizes.exact, c.predictor_width(), D, rooms_.fc1));
    if (section.attention()) {
      b.apart = c.keeps_all_keys(section);
      if (b.apart) {
        add(b.kv, prefix + "kv", 2 * heads.kv_cols(), D, rooms_.kv);
        add(b.q, prefix + "q", heads.q_cols(), D, rooms_.q);
      } else {
        add(b.qkv, prefix + "qkv", heads.qkv_cols(), D, rooms_.qkv);
      }
      add(b.o, prefix + "o", D, heads.q_cols(), rooms_.o);
    }
    if (section.mlp() && !c.has_experts()) {
      add(b.gate_up, prefix + "gate_up", 2 * F, D, rooms_.gate_up);
      add(b.down, prefix + "down", D, F, rooms_.down);
    }
    if (section.mlp()) b.expert.resize(size_t(c.experts.experts));
    for (size_t e = 0; e < b.expert.size(); e++) {  // of as many rows as a chunk has; how many, nobody knows beforehand
      const int64_t rows = std::min(sizes.max_rows, kMlpRows);
      const std::string expert = prefix + "expert." + std::to_string(e) + ".";
      add_up_to(rows, {}, b.expert[e].gate_up, expert + "gate_up", 2 * F, D, rooms_.gate_up);
      add_up_to(rows, {}, b.expert[e].down, expert + "down", D, F, rooms_.down);
    }
  }
  for (PackingRoom* room : {&rooms_.qkv, &rooms_.q, &rooms_.kv, &rooms_.o, &rooms_.gate_up, &rooms_.down, &rooms_.fc1})
    if (room->needed > 0) plan.add("packed.room", room->bytes, {room->needed});
  const int64_t chunk[] = {sizes.head_rows};
  if (sizes.frozen)
    head_.plan(plan, "packed.head",
               FrozenLinear::Sizes{.N = c.vocab_size, .K = D, .max_rows = sizes.head_rows, .format = *sizes.frozen});
  else
    head_.plan(plan, "packed.head",
               Linear::Sizes{
                   .N = c.vocab_size, .K = D, .max_rows = sizes.head_rows, .exact = chunk, .backward = sizes.backward});
  bytes_ = plan.bytes();
  if (allocate == Allocate::kYes) arena_ = Arena(plan);
}

void Products::for_each_packed(const Weights& w, const PackProduct& f) {
  const auto exists = [](const F32& view) { return view.shape.rank() > 0; };  // wherever it is
  for (size_t l = 0; l < section_.size(); l++) {
    const SectionWeights& b = w.section[l];
    SectionProducts& p = section_[l];
    if (exists(b.q)) {
      if (p.apart) {
        f(p.q, {&b.q});
        f(p.kv, {&b.k, &b.v});
      } else {
        f(p.qkv, {&b.q, &b.k, &b.v});
      }
      f(p.o, {&b.o});
    }
    if (exists(b.gate)) {
      f(p.gate_up, {&b.gate, &b.up});
      f(p.down, {&b.down});
    }
    for (size_t e = 0; e < b.expert.size(); e++) {
      f(p.expert[e].gate_up, {&b.expert[e].gate, &b.expert[e].up});
      f(p.expert[e].down, {&b.expert[e].down});
    }
    if (!b.router.fc1.empty()) p.fc1.pack(b.router.fc1);
  }
  f(head_, {exists(w.head) ? &w.head : &w.embed});
}

void Products::pack(const Weights& weights) {
  for_each_packed(weights, [](Product& product, std::initializer_list<const F32*> parts) {
    const F32& first = **parts.begin();
    int64_t rows = 0;
    for (const F32* part : parts) rows += part->rows();
    product.pack(CF32{first.data, {rows, first.cols()}});
  });
}

void Products::pack(const WeightSet& set, const FileMatrices& file) {
  for_each_packed(set.weights(), [&](Product& product, std::initializer_list<const F32*> parts) {
    std::vector<RawMatrix> matrices;
    std::vector<std::string> names;
    for (const F32* part : parts) matrices.push_back(part->empty() ? file.find(set.name_of(*part)) : raw(*part));
    if (product.pack(matrices)) return;
    for (const F32* part : parts) names.push_back(set.name_of(*part));
    fail_work("{}: {} not finite, or no code of its format; the model is damaged, or its training diverged", file.where,
              names.size() == 1 ? names[0] + " is" : fmt::format("one of {} is", fmt::join(names, ", ")));
  });
}

}  // namespace isobath
