#include "model/activations.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "ops/rope.h"
#include "ops/select.h"

namespace isobath {

int64_t planned_rows(const ModelConfig& c, int64_t l, const BatchLimits& limits, Purpose purpose) {
  const Section section = c.section(l);
  if (purpose == Purpose::kForward || !section.routed) return limits.rows();
  const double capacity = c.capacity(section);
  if (c.routing.capacity_scope == Scope::kSequence) return limits.sequences * capacity_rows(capacity, limits.T);
  // Each document takes max(1, floor(C T_d)) rows, so at most C T and one more per document.
  const int64_t most = int64_t(std::floor(capacity * double(limits.T) + 1e-9)) + limits.max_documents;
  return limits.sequences * std::min(limits.T, most);
}

namespace {

// Of a sequence of T rows that is cut into so many runs.
int64_t most_assignments(const ExpertsConfig& e, int64_t T, int64_t runs) {
  if (e.choice == Choice::kExpert) {
    if (runs == 1) return e.experts * capacity_rows(e.capacity, T);
    return e.experts * std::min(T, int64_t(std::floor(e.capacity * double(T) + 1e-9)) + runs);
  }
  if (e.capacity_factor == 0) return e.per_token * T;
  const double kept = e.capacity_factor * double(e.per_token) * double(T);
  return std::min(e.per_token * T, int64_t(kept) + (e.experts + 1) * runs);
}

}  // namespace

int64_t planned_assignments(const ModelConfig& c, int64_t l, const BatchLimits& limits, Purpose purpose) {
  const ExpertsConfig& e = c.experts;
  const int64_t S = planned_rows(c, l, limits, purpose);
  if (purpose == Purpose::kForward) return S * (c.experts_choose() ? e.experts : e.per_token);
  const int64_t runs = c.routing.capacity_scope == Scope::kSequence ? 1 : limits.max_documents;
  return limits.sequences * most_assignments(e, S / limits.sequences, runs);
}

int64_t head_chunk(const ModelConfig& c, int64_t rows) {
  constexpr int64_t kLogits = int64_t{1} << 20;  // 4 MB: stays in cache between product, softmax and product
  const int64_t chunk = std::clamp<int64_t>(kLogits / c.vocab_size, 256, 4096);
  return std::min(rows, chunk);
}

Activations::Activations(const ModelConfig& c, const BatchLimits& limits, Purpose purpose, Allocate allocate,
                         const MemoryOptions& memory)
    : section(size_t(c.sections())),
      limits_(limits),
      purpose_(purpose),
      memory_(purpose == Purpose::kTrain ? memory : MemoryOptions()),
      section_bytes_(size_t(c.sections())) {
  require(
      !c.keeps_all_keys() || memory_.storage == Storage::kF32 || !recomputes(),
      "cache = all with storage = bf16 and recompute = blocks: the keys of all rows would be made again from rounded "
      "rows, and differ; change one of the three");
  const int64_t N = limits.rows(), D = c.hidden_size;
  plan_.add("x", x, {N, D});
  if (purpose == Purpose::kTrain) plan_.add("dx", dx, {N, D});
  plan_.add("loss", loss, {N});
  plan_.add("entropy", entropy, {N});
  plan_.add("rope", rope, {c.max_position_embeddings, c.head_dim});
  for (int64_t l = 0; l < c.sections(); l++) {
    if (c.section(l).routed) plan_router(c, l);
    if (c.has_experts() && c.section(l).mlp()) plan_experts(c, l);
  }
  plan_sections(c);
  plan_scratch(c);
  list_sizes_.push_back(N);
  if (purpose == Purpose::kTrain)
    for (int64_t l = 0; l < c.sections(); l++) list_sizes_.push_back(planned_rows(c, l, limits, purpose));
  std::sort(list_sizes_.begin(), list_sizes_.end());
  list_sizes_.erase(std::unique(list_sizes_.begin(), list_sizes_.end()), list_sizes_.end());
  if (allocate == Allocate::kNo) return;
  arena_ = Arena(plan_);
  rope_table(rope, c.rope_theta);
}

void Activations::plan_sections(const ModelConfig& c) {
  if (recomputes())
    for (int64_t l = 0; l < c.sections(); l++) plan_saved(c, l);
  const int64_t shared = plan_.mark();
  for (int64_t l = 0; l < c.sections(); l++) {
    if (blocks_share()) plan_.rewind(shared);
    if (!recomputes()) plan_saved(c, l);
    const int64_t alone = section_bytes_[size_t(l)];
    plan_section(c, l);
    if (blocks_share()) section_bytes_[size_t(l)] = alone;
  }
  plan_.rewind(std::max(shared, plan_.bytes()));
}

template <class V, class... Format>
void Activations::add(int64_t l, const char* name, V& view, Shape shape, Format... format) {
  plan_.add("section." + std::to_string(l) + "." + name, view, shape, format...);
  section_bytes_[size_t(l)] += plan_.entries().back().bytes;
}

void Activations::plan_saved(const ModelConfig& c, int64_t l) {
  add(l, "saved", section[size_t(l)].saved, {planned_rows(c, l, limits_, purpose_), c.hidden_size}, memory_.storage);
}

void Activations::plan_section(const ModelConfig& c, int64_t l) {
  SectionActs& b = section[size_t(l)];
  const bool train = purpose_ == Purpose::kTrain;
  const int64_t S = planned_rows(c, l, limits_, purpose_), D = c.hidden_size;
  const Heads heads = c.heads();
  const Storage storage = memory_.storage;
  const Section part = c.section(l);
  if (part.attention()) {
    add(l, "rstd1", b.rstd1, {S});
    if (c.keeps_all_keys(part)) {
      add(l, "q", b.qkv, {S, heads.q_cols()}, storage);
      add(l, "kv", b.kv, {limits_.rows(), 2 * heads.kv_cols()}, storage);
      add(l, "rstd_all", b.rstd_all, {limits_.rows()});
    } else {
      add(l, "qkv", b.qkv, {S, heads.qkv_cols()}, storage);
    }
    add(l, "o", b.o, {S, heads.q_cols()}, storage);
    if (train) add(l, "lse", b.lse, {S, heads.H});
  }
  if ((train || c.has_experts()) && part.part == Part::kBlock) add(l, "z", b.z, {S, D}, storage);
  if (part.mlp()) {
    int64_t kept = S;
    if (c.has_experts()) kept = train ? planned_assignments(c, l, limits_, purpose_) : std::min(S, kMlpRows);
    add(l, "rstd2", b.rstd2, {S});
    add(l, "uv", b.uv, {kept, 2 * c.intermediate_size}, storage);
  }
  if (train && part.routed) add(l, "delta", b.delta, {S, D}, storage);
}

// Scores and choices outlive the pass in every purpose: pictures and statistics are made of them.
void Activations::plan_router(const ModelConfig& c, int64_t l) {
  RouterActs& r = section[size_t(l)].router;
  const bool train = purpose_ == Purpose::kTrain;
  const int64_t S = planned_rows(c, l, limits_, purpose_), N = limits_.rows();
  add(l, "router.score", r.score, {N});
  if (c.norms_router_input()) add(l, "router.rstd", r.rstd, {N});
  if (c.has_causal_rule()) add(l, "router.logit", r.logit, {N});
  if (train && c.predictors_look_back()) add(l, "router.hidden", r.hidden, {N, c.predictor_width()});
  if (train) add(l, "router.dscore", r.dscore, {N});
  add(l, "router.gate", r.gate, {S});
  if (train) add(l, "router.dgate", r.dgate, {S});
  add(l, "router.index", r.index, {S});
  add(l, "router.position", r.position, {S});
  add(l, "router.segment_begin", r.segment_begin, {limits_.runs() + 1});
  if (c.keeps_all_keys(c.section(l))) add(l, "router.seen", section[size_t(l)].seen, {S});
  add(l, "router.chosen_begin", r.chosen_begin, {limits_.runs() + 1});
}

// These too: they are what routers are to whole blocks.
void Activations::plan_experts(const ModelConfig& c, int64_t l) {
  ExpertActs& x = section[size_t(l)].experts;
  const int64_t S = planned_rows(c, l, limits_, purpose_), O = c.experts.outputs();
  const int64_t M = planned_assignments(c, l, limits_, purpose_);
  add(l, "experts.logit", x.logit, {S, O});
  add(l, "experts.p", x.p, {S, O});
  add(l, "experts.place", x.to.place, {S, O});
  add(l, "experts.row", x.to.row, {M});
  add(l, "experts.weight", x.to.weight, {M});
  add(l, "experts.begin", x.to.begin, {c.experts.experts + 1});
}

void Activations::plan_scratch(const ModelConfig& c) {
  Scratch& s = scratch;
  const int64_t N = limits_.rows(), D = c.hidden_size, P = c.predictor_width(), chunk = head_chunk(c, N);
  plan_.add("scratch.select", s.select, {N});
  if (c.has_predictor()) plan_.add("scratch.hidden", s.hidden, {N, P});
  if (purpose_ == Purpose::kTrain) {
    plan_.add("scratch.dpredicted", s.dpredicted, {N});
    plan_.add("scratch.partial", s.partial, {kGradChunks, std::max({D, 2 * P + 1, c.experts.outputs() * D})});
  }
  // The blocks' scratch and the head's never live together.
  const int64_t together = plan_.mark();
  plan_section_scratch(c);
  plan_.rewind(together);
  plan_.add("scratch.logits", s.logits, {chunk, c.vocab_size});
  plan_.add("scratch.chunk_normed", s.chunk_normed, {chunk, D});
  plan_.add("scratch.chunk_rstd", s.chunk_rstd, {chunk});
}

void Activations::plan_section_scratch(const ModelConfig& c) {
  Scratch& s = scratch;
  const bool train = purpose_ == Purpose::kTrain;
  const int64_t D = c.hidden_size, F = c.intermediate_size;
  int64_t S = 0;  // the longest list
  for (int64_t l = 0; l < c.sections(); l++) S = std::max(S, planned_rows(c, l, limits_, purpose_));
  if (c.keeps_all_keys()) S = limits_.rows();
  const Heads heads = c.heads();
  plan_.add("scratch.normed", s.normed, {S, D});
  const int64_t passes = plan_.mark();
  plan_.add("scratch.a", s.a, {S, D});
  plan_.add("scratch.m", s.m, {S, D});
  const int64_t forward_end = plan_.mark();
  plan_.rewind(passes);
  if (train) {
    plan_.add("scratch.ddelta", s.ddelta, {S, D});
    plan_.add("scratch.dz2", s.dz2, {S, D});
    if (c.keeps_all_keys()) plan_.add("scratch.dkeys", s.dkeys, {S, D});
  }
  plan_.rewind(std::max(forward_end, plan_.mark()));
  const int64_t halves = plan_.mark();
  if (train) {
    plan_.add("scratch.qkv", s.qkv, {S, heads.qkv_cols()});
    plan_.add("scratch.o", s.o, {S, heads.q_cols()});
  }
  plan_.rewind(halves);
  const int64_t rows = std::min(S, kMlpRows);
  plan_.add("scratch.h", s.h, {rows, F});
  if (memory_.storage != Storage::kF32) plan_.add("scratch.uv", s.uv, {rows, 2 * F});
  if (c.has_experts()) plan_expert_scratch(c, S);
}

void Activations::plan_expert_scratch(const ModelConfig& c, int64_t S) {
  Scratch& s = scratch;
  const int64_t rows = std::min(S, kMlpRows), O = c.experts.outputs();
  plan_.add("scratch.rows", s.rows, {rows, c.hidden_size});
  plan_.add("scratch.sums", s.sums, {rows, c.hidden_size});
  if (c.experts_choose()) {
    plan_.add("scratch.column", s.column, {S});
    plan_.add("scratch.chosen_begin", s.chosen_begin, {limits_.runs() + 1});
  }
  if (purpose_ != Purpose::kTrain) return;
  int64_t M = 0;
  for (int64_t l = 0; l < c.sections(); l++) M = std::max(M, planned_assignments(c, l, limits_, purpose_));
  plan_.add("scratch.dweight", s.dweight, {M});
  plan_.add("scratch.dp", s.dp, {S, O});
  plan_.add("scratch.dlogit", s.dlogit, {S, O});
}

}  // namespace isobath
