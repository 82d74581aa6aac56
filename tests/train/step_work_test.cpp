// What a training step moves through memory, op by op: each op says its bytes from the arrays it was given, the
// formulas here are made of the model's sizes alone. A pass over memory that somebody adds to a step is seen without a
// clock.
#include <gtest/gtest.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "base/work.h"
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
  Expected(const ModelConfig& c, int64_t B, int64_t T) : c_(c), B_(B), N_(B * T) {
    add("embedding_forward", N_ * D + N_ + looked_up() * D);
    for (int64_t l = 0; l < c.num_hidden_layers; l++) {
      const int64_t S = c.routed(l) ? B * capacity_rows(c.capacity(l), T) : N_;
      block(S, T, c.routed(l));
      if (c.routed(l)) router(S);
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

  // y = x W^T over S rows and back.
  void product(int64_t S, int64_t out, int64_t in) {
    add("linear_forward", S * out + S * in + out * in);
    add("linear_backward_input", S * out + S * in + out * in);
    add("linear_backward_weight", S * out + S * in + 2 * out * in);
  }
  void block(int64_t S, int64_t T, bool routed) {
    const int64_t index = routed ? S : 0, gate = routed ? S : 0;
    const int64_t rotated = 2 * S * (heads.H + heads.G) * heads.K + S + std::min(S, T) * heads.K;
    const int64_t qkv = S * heads.qkv_cols(), o = S * heads.q_cols(), lse = S * heads.H, segments = B_ + 1;
    add("rmsnorm_forward", 3 * S * D + S + D + index);  // gathers, keeps and normalizes the rows
    product(S, heads.qkv_cols(), D);
    add("rope_forward", rotated);
    add("attention_forward", qkv + o + lse + segments);
    product(S, D, heads.q_cols());
    add("rmsnorm_forward", 3 * S * D + S + D);  // x + a
    product(S, 2 * F, D);
    add("swiglu_forward", 3 * S * F);
    product(S, D, F);
    add("residual_add_forward", 4 * S * D + gate + index);

    add("residual_add_backward", 2 * S * D + gate + index + (routed ? S + 2 * S * D : 0));
    add("swiglu_backward", 6 * S * F);
    add("rmsnorm_apply", 3 * S * D + S + D);
    add("rmsnorm_backward", 4 * S * D + S + 3 * D);
    add("scatter_add", 3 * S * D);  // ddelta + dz2
    add("attention_backward", 2 * qkv + 2 * o + lse + segments);
    add("rope_backward", rotated);
    add("rmsnorm_apply", 2 * S * D + S + D);
    add("rmsnorm_backward", 3 * S * D + S + 3 * D);
    add("scatter_add", 4 * S * D + index);
  }
  void router(int64_t S) {
    const int64_t bias = c_.routing.router_bias ? 1 : 0, P = c_.predictor_width();
    add("select_top_k", N_ + S + 2 * (B_ + 1));
    add("gate_forward", 3 * S);
    if (c_.routing.router == Router::kRandom) return;
    add("router_score", N_ * D + N_ + D + bias);
    add("gate_backward", 4 * S);
    add("router_backward_weight", S * D + S + 2 * D + 2 * bias);
    add("router_backward_input", 2 * N_ * D + N_ + D);
    if (c_.routing.causal != Causal::kNone) add("bce_with_logits", 3 * N_ + S);
    if (c_.routing.causal == Causal::kBce) add("router_backward_weight", N_ * D + N_ + 2 * D + 2 * bias);
    if (c_.routing.causal != Causal::kPredictor) return;
    add("linear_forward", N_ * P + N_ * D + P * D);
    add("predictor_forward", 2 * N_ * P + N_ + 2 * P + 1);
    add("predictor_backward", 2 * N_ * P + N_ + 5 * P + 2);
    add("linear_backward_weight", N_ * P + N_ * D + 2 * P * D);
  }
  void head() {
    const int64_t most = head_chunk(c_, N_), V = c_.vocab_size;
    for (int64_t at = 0; at < N_; at += most) {
      const int64_t n = std::min(most, N_ - at);
      add("rmsnorm_forward", 2 * n * D + n + D);
      product(n, V, D);
      add("cross_entropy", 2 * n * V + 3 * n);
      add("rmsnorm_backward", 3 * n * D + n + 3 * D);
    }
  }
  void parameters() {
    Weights unbound;
    for_each_weight(c_, unbound, [&](const WeightInfo& info, F32&) {
      add("sum_of_squares", info.shape.numel());
      add("adamw_step", 8 * info.shape.numel());
    });
    const auto pack = [&](int64_t out, int64_t in) { add("linear_pack", 3 * out * in); };
    for (int64_t l = 0; l < c_.num_hidden_layers; l++) {
      pack(heads.qkv_cols(), D), pack(D, heads.q_cols()), pack(2 * F, D), pack(D, F);
      if (c_.has_predictor() && c_.routed(l)) pack(c_.predictor_width(), D);
    }
    pack(c_.vocab_size, D);
  }

  const ModelConfig& c_;
  const int64_t B_, N_, D = c_.hidden_size, F = c_.intermediate_size;
  const Heads heads = c_.heads();
};

struct Model {
  const char* name;
  ModelConfig config;
};
std::vector<Model> models() {
  ModelConfig predictor = tiny_routed(0.125, 4), random = tiny_routed(), tied = tiny_config();
  predictor.routing.causal = Causal::kPredictor;
  predictor.routing.router_bias = true;
  random.routing.router = Router::kRandom;
  random.routing.causal = Causal::kNone;
  tied.tie_word_embeddings = true;
  return {{"Dense", tiny_config()},
          {"DenseTied", tied},
          {"Bce", tiny_routed()},
          {"Predictor", predictor},
          {"Random", random}};
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
  TinyModel model(config, limits_for(sequences));
  Optimizer optimizer(model.config, {});
  const TinyBatch batch(sequences, model.config);

  const int64_t bytes_before = executed_bytes;
  const Profile profile;
  model.step(batch);
  optimizer.step(model.weights, model.gradient, 1e-3, 1);
  model.products.pack(model.weights.weights());

  Ledger found;
  int64_t all = 0;
  for (const Profile::Op& op : profile.ops()) {
    EXPECT_EQ(op.bytes % 4, 0) << op.name;
    found[op.name] = {op.calls, op.bytes / 4};
    all += op.bytes;
  }
  Ledger expected = Expected(model.config, B, T).ledger;
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
