// What a training step moves through memory, op by op: each op says its bytes from the arrays it was given, the
// formulas here are made of the model's sizes alone. A pass over memory that somebody adds to a step is seen without a
// clock.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "base/work.h"
#include "model/flops.h"
#include "model/selection_rule.h"
#include "ops/select.h"
#include "support/tiny_model.h"
#include "train/optimizer.h"

namespace isobath {
namespace {

using namespace isobath::testing;

struct Traffic {
  int64_t calls = 0, floats = 0;  // four bytes each, be they floats or indices
  bool operator==(const Traffic&) const = default;
};
void PrintTo(const Traffic& t, std::ostream* out) { *out << t.calls << " calls, " << t.floats << " floats"; }
using Ledger = std::map<std::string, Traffic>;

// The formulas, in the letters of docs/design.md.
class Expected {
 public:
  Expected(const ModelConfig& c, const MemoryOptions& memory, int64_t B, int64_t T)
      : c_(c),
        bf16_(memory.storage == Storage::kBf16),
        packs_again_(memory.packing == Packing::kProduct),
        B_(B),
        N_(B * T) {
    add("embedding_forward", N_ * D + N_ + looked_up() * D);
    for (int64_t l = 0; l < c.num_hidden_layers; l++) {
      const int64_t S = c.routed(l) ? B * capacity_rows(c.capacity(l), T) : N_;
      block(S, T, c.routed(l));
      if (c.restores_stream()) add("restore_rows", S * D + kept(S * D) + (c.routed(l) ? S : 0));
      if (c.routed(l)) router(S);
      const bool last = l + 1 == c.num_hidden_layers;  // its buffers still hold it
      if (memory.recompute == Recompute::kBlocks && !last) block_again(S, T, c.routed(l));
    }
    head();
    add("embedding_backward", N_ * D + N_ + 2 * looked_up() * D);
    parameters();
  }
  Ledger ledger;

 private:
  void add(const char* op, int64_t floats) {
    ledger[op].calls++;
    ledger[op].floats += floats;
  }
  int64_t looked_up() const { return std::min(N_, c_.vocab_size); }

  int64_t rotated(int64_t S, int64_t T) const {
    return 2 * S * (heads.H + heads.G) * heads.K + S + std::min(S, T) * heads.K;
  }
  // Of numbers that are kept for backward: two bytes each in bf16.
  int64_t kept(int64_t numbers) const { return bf16_ ? numbers / 2 : numbers; }
  void forward(int64_t S, int64_t out, int64_t in) { add("linear_forward", S * out + S * in + out * in); }
  void backward_weight(int64_t S, int64_t out, int64_t in) {
    add("linear_backward_weight", S * out + S * in + 2 * out * in);
  }
  void backward(int64_t S, int64_t out, int64_t in) {
    add("linear_backward_input", S * out + S * in + out * in);
    backward_weight(S, out, in);
  }
  // Before the product of a block, or its first chunk, where no packed copies are kept.
  void pack_before(int64_t out, int64_t in) {
    if (packs_again_) add("linear_pack", 2 * out * in);
  }
  void widened_o(int64_t S) {
    if (bf16_) add("widen", S * heads.q_cols() + kept(S * heads.q_cols()));
  }
  void attention_half(int64_t S, int64_t T) {
    const int64_t qkv = S * heads.qkv_cols();
    pack_before(heads.qkv_cols(), D);
    pack_before(D, heads.q_cols());
    forward(S, heads.qkv_cols(), D);
    add("rope_forward", bf16_ ? qkv + kept(qkv) + S + std::min(S, T) * heads.K : rotated(S, T));
    add("attention_forward", kept(qkv + S * heads.q_cols()) + S * heads.H + B_ + 1);
    widened_o(S);
    forward(S, D, heads.q_cols());
  }
  void mlp_half(int64_t S, bool output) {
    pack_before(2 * F, D);
    if (output) pack_before(D, F);
    add("rmsnorm_forward", 2 * S * D + 2 * kept(S * D) + S + D);  // saved + a, which is kept
    if (c_.has_experts()) return experts_half(S);
    for (int64_t at = 0; at < S; at += kMlpRows) {
      const int64_t n = std::min(kMlpRows, S - at);
      forward(n, 2 * F, D);
      if (output || bf16_) add("swiglu_forward", 3 * n * F + (bf16_ ? kept(2 * n * F) : 0));
      if (output) forward(n, D, F);
    }
  }
  // Experts that choose have lists of known lengths.
  int64_t expert_rows(int64_t S) const { return B_ * capacity_rows(c_.experts.capacity, S / B_); }
  void gathered_norm(int64_t n) { add("rmsnorm_apply", n * D + kept(n * D) + 2 * n + D); }
  void experts_half(int64_t S) {
    const int64_t E = c_.experts.experts, n = expert_rows(S);
    add("expert_router_forward", kept(S * D) + S + D + E * D + 2 * S * E);
    add("choose_by_expert", 3 * S * E + (B_ + 1) + (E + 1) + 2 * E * n);
    add("zero_rows", S * D);
    for (int64_t e = 0; e < E; e++) {
      add("select_top_k", S + n + 2 * (B_ + 1));
      gathered_norm(n);
      forward(n, 2 * F, D);
      add("swiglu_forward", 3 * n * F + n);
      forward(n, D, F);
      add("scatter_add", 3 * n * D + n);
    }
  }
  void experts_backward(int64_t S) {
    const int64_t E = c_.experts.experts, n = expert_rows(S);
    add("zero_rows", S * D);
    for (int64_t e = 0; e < E; e++) {
      add("residual_add_backward", 2 * n * D + n);  // gathers the rows of dm
      gathered_norm(n);
      backward(n, D, F);
      add("swiglu_backward", 4 * n * F + kept(2 * n * F) + 2 * n);
      backward(n, 2 * F, D);
      add("scatter_add", 3 * n * D + n);
    }
    add("expert_weights_backward", 3 * S * E + E * n);
    add("expert_imitation_loss", 4 * S * E + B_ + 1);
    add("expert_softmax_backward", 4 * S * E);
    add("expert_router_backward_weight", 2 * E * D + S * E + kept(S * D) + S + D);
    add("expert_router_backward_input", 2 * S * D + S * E + E * D);
  }
  void mlp_backward(int64_t S) {
    if (c_.has_experts()) {
      experts_backward(S);
      add("rmsnorm_backward", 2 * S * D + kept(S * D) + S + 3 * D);
      add("scatter_add", 3 * S * D);
      return;
    }
    pack_before(2 * F, D);
    pack_before(D, F);
    add("rmsnorm_apply", S * D + kept(S * D) + S + D);
    for (int64_t at = 0; at < S; at += kMlpRows) {
      const int64_t n = std::min(kMlpRows, S - at);
      backward(n, D, F);
      add("swiglu_backward", 4 * n * F + kept(2 * n * F));
      backward(n, 2 * F, D);
    }
    add("rmsnorm_backward", 2 * S * D + kept(S * D) + S + 3 * D);
    add("scatter_add", 3 * S * D);  // ddelta + dz2
  }
  void block(int64_t S, int64_t T, bool routed) {
    const int64_t index = routed ? S : 0, gate = routed ? S : 0, delta = routed ? kept(S * D) : 0;
    add("rmsnorm_forward", 2 * S * D + kept(S * D) + S + D + index);  // gathers, keeps and normalizes the rows
    attention_half(S, T);
    mlp_half(S, true);
    add("residual_add_forward", 4 * S * D + delta + gate + index);

    add("residual_add_backward", 2 * S * D + gate + index + (routed ? S + delta : 0));
    mlp_backward(S);
    pack_before(D, heads.q_cols());
    pack_before(heads.qkv_cols(), D);
    widened_o(S);
    backward(S, D, heads.q_cols());
    const int64_t columns = S * (heads.qkv_cols() + heads.q_cols());
    add("attention_backward", columns + kept(columns) + S * heads.H + B_ + 1);
    add("rope_backward", rotated(S, T));
    backward(S, heads.qkv_cols(), D);
    add("rmsnorm_apply", S * D + kept(S * D) + S + D);
    add("rmsnorm_backward", 2 * S * D + kept(S * D) + S + 3 * D);
    add("scatter_add", 4 * S * D + index);
  }
  void block_again(int64_t S, int64_t T, bool routed) {
    add("rmsnorm_forward", S * D + kept(S * D) + S + D);
    attention_half(S, T);
    mlp_half(S, routed);
    if (routed) add("residual_add_forward", 2 * S * D + kept(S * D));  // the gate's gradient reads it
  }
  void router(int64_t S) {
    const int64_t bias = c_.routing.router_bias ? 1 : 0, P = c_.predictor_width();
    const bool spaced = c_.routing.router == Router::kSpaced;
    if (c_.routing.select == "top_k")  // a rule of one's own tells nothing
      add(spaced ? "select_spaced" : "select_top_k", (spaced ? 0 : N_) + S + 2 * (B_ + 1));
    add("gate_forward", 3 * S);
    if (c_.routing.router != Router::kLearned) return;
    const bool normed = c_.norms_router_input();
    const int64_t rms = normed ? N_ : 0;
    add(normed ? "router_score_normed" : "router_score", N_ * D + N_ + D + bias + rms);
    add("gate_backward", 4 * S);
    add("router_backward_weight", kept(S * D) + S + 2 * D + 2 * bias + (normed ? 2 * S : 0));
    if (normed)
      add("router_backward_input_normed", 3 * N_ * D + 3 * N_ + D + bias);
    else
      add("router_backward_input", 2 * N_ * D + N_ + D);
    const bool imitates = c_.routing.causal == Causal::kBce || c_.routing.causal == Causal::kPredictor;
    if (imitates) add("bce_with_logits", 3 * N_ + S);
    if (c_.routing.choice == Choice::kToken) add("balance_loss", 3 * N_ + B_ + 1);
    if (c_.routing.z_weight > 0) add("square_loss", 3 * N_);
    if (c_.has_score_loss()) add("router_backward_weight", N_ * D + N_ + 2 * D + 2 * bias + rms);
    if (c_.routing.causal != Causal::kPredictor) return;
    pack_before(P, D);
    forward(N_, P, D);
    add("predictor_forward", 2 * N_ * P + N_ + 2 * P + 1);
    add("predictor_backward", 2 * N_ * P + N_ + 5 * P + 2);
    add("linear_backward_weight", N_ * P + N_ * D + 2 * P * D);
  }
  void head() {
    const int64_t most = head_chunk(c_, N_), V = c_.vocab_size;
    for (int64_t at = 0; at < N_; at += most) {
      const int64_t n = std::min(most, N_ - at);
      add("rmsnorm_forward", 2 * n * D + n + D);
      forward(n, V, D);
      backward(n, V, D);
      add("cross_entropy", 2 * n * V + 3 * n);
      add("rmsnorm_backward", 3 * n * D + n + 3 * D);
    }
  }
  void parameters() {
    Weights unbound;
    for_each_weight(c_, unbound, [&](const WeightInfo& info, F32&) {
      if (!is_trained(info.kind)) return;
      add("sum_of_squares", info.shape.numel());
      add("adamw_step", 8 * info.shape.numel());
    });
    const auto pack = [&](int64_t out, int64_t in) { add("linear_pack", 3 * out * in); };
    for (int64_t l = 0; l < c_.num_hidden_layers && !packs_again_; l++) {
      pack(heads.qkv_cols(), D), pack(D, heads.q_cols());
      for (int64_t mlp = 0; mlp < std::max<int64_t>(1, c_.experts.experts); mlp++) pack(2 * F, D), pack(D, F);
      if (c_.has_predictor() && c_.routed(l)) pack(c_.predictor_width(), D);
    }
    pack(c_.vocab_size, D);
  }

  const ModelConfig& c_;
  const bool bf16_, packs_again_;
  const int64_t B_, N_, D = c_.hidden_size, F = c_.intermediate_size;
  const Heads heads = c_.heads();
};

struct Model {
  const char* name;
  ModelConfig config;
  MemoryOptions memory = {};
};
// A rule of one's own.
void last_rows(std::span<int32_t> chosen, const ScoredRun& run) {
  std::iota(chosen.begin(), chosen.end(), int32_t(run.score.size() - chosen.size()));
}

std::vector<Model> models() {
  static const bool added = (add_selection_rule("last_rows", last_rows), true);
  static_cast<void>(added);
  ModelConfig predictor = tiny_routed(0.125, 4), random = tiny_routed(), tied = tiny_config();
  predictor.routing.causal = Causal::kPredictor;
  predictor.routing.router_bias = true;
  random.routing.router = Router::kRandom;
  random.routing.causal = Causal::kNone;
  tied.tie_word_embeddings = true;
  ModelConfig normed = tiny_routed(0.3, 4);
  normed.routing.router_input = RouterInput::kNormed;
  normed.routing.router_bias = true;
  ModelConfig threshold = tiny_routed();
  threshold.routing.causal = Causal::kThreshold;
  threshold.routing.z_weight = 0.1;
  ModelConfig spaced = random;
  spaced.routing.router = Router::kSpaced;
  ModelConfig experts = tiny_config(), staged = tiny_routed();
  experts.experts = staged.experts = {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4};
  // Offsets are of causal rules, and a rule takes as many rows as top-k: a step moves and multiplies what it did.
  ModelConfig offset = tiny_routed(), experts_offset = experts, staged_offset = staged, ruled = tiny_routed();
  offset.routing.router_offset = staged_offset.routing.router_offset = true;
  experts_offset.experts.offset = staged_offset.experts.offset = true;
  ruled.routing.select = "last_rows";
  const MemoryOptions recompute{.recompute = Recompute::kBlocks}, bf16{.storage = Storage::kBf16},
      both{.recompute = Recompute::kBlocks, .storage = Storage::kBf16}, pack{.packing = Packing::kProduct},
      all{.recompute = Recompute::kBlocks, .storage = Storage::kBf16, .packing = Packing::kProduct};
  return {{"Dense", tiny_config()},
          {"DenseTied", tied},
          {"Bce", tiny_routed()},
          {"Predictor", predictor},
          {"Normed", normed},
          {"Threshold", threshold},
          {"Random", random},
          {"Spaced", spaced},
          {"Experts", experts},
          {"StagedExperts", staged},
          {"BceOffset", offset},
          {"ExpertsOffset", experts_offset},
          {"StagedExpertsOffset", staged_offset},
          {"RuleOfOnesOwn", ruled},
          {"DenseRecomputed", tiny_config(), recompute},
          {"BceRecomputed", tiny_routed(), recompute},
          {"DenseBf16", tiny_config(), bf16},
          {"NormedBf16", normed, bf16},
          {"DenseBf16Recomputed", tiny_config(), both},
          {"BceBf16Recomputed", tiny_routed(), both},
          {"PredictorPackedAgain", predictor, pack},
          {"BceAll", tiny_routed(), all}};
}
void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }

class StepWork : public ::testing::TestWithParam<Model> {};
INSTANTIATE_TEST_SUITE_P(Models, StepWork, ::testing::ValuesIn(models()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(StepWork, MovesTheBytesOfTheFormulas) {
  constexpr int64_t B = 3, T = 20;
  ModelConfig config = GetParam().config;
  config.max_position_embeddings = T;
  const std::vector<Sequence> sequences = random_sequences(std::vector<int64_t>(size_t(B), T), config.vocab_size);
  TinyModel model(config, limits_for(sequences), Purpose::kTrain, 3, GetParam().memory);
  Optimizer optimizer(model.config, {});
  const TinyBatch batch(sequences, model.config);

  const int64_t bytes_before = executed_bytes, products_before = executed_multiply_adds;
  const Profile profile;
  model.step(batch);
  EXPECT_EQ(executed_multiply_adds - products_before, executed_count(model.config, model.acts, batch.view()).total());
  optimizer.step(model.weights, model.gradient, 1e-3, 1);
  model.products.pack(model.weights.weights());

  Ledger found;
  int64_t all = 0;
  for (const Profile::Op& op : profile.ops()) {
    EXPECT_EQ(op.bytes % 4, 0) << op.name;
    found[op.name] = {op.calls, op.bytes / 4};
    all += op.bytes;
  }
  Ledger expected = Expected(model.config, GetParam().memory, B, T).ledger;
  for (const auto& [op, traffic] : found) EXPECT_EQ(traffic, expected[op]) << op;
  EXPECT_EQ(found.size(), expected.size());
  EXPECT_EQ(executed_bytes - bytes_before, all);
}

// Products are what a step is for.
TEST(StepWork, KnowsItsProducts) {
  const std::vector<Sequence> sequences = random_sequences({9, 9}, tiny_config().vocab_size);
  TinyModel model(tiny_routed(), limits_for(sequences));
  const TinyBatch batch(sequences, model.config);
  const Profile profile;
  model.step(batch);
  for (const Profile::Op& op : profile.ops()) {
    const std::string name = op.name;
    EXPECT_EQ(op.product, name.starts_with("linear_") || name.starts_with("attention_")) << name;
    EXPECT_EQ(op.multiply_adds > 0, op.product || name.starts_with("router_score") || name == "router_backward_weight")
        << name;
  }
}

}  // namespace
}  // namespace isobath
