// Small random models that route some rows and not others, and their uncached evaluation: the judge of generation.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "generate/engine.h"
#include "model/model.h"
#include "model/network.h"
#include "support/compare.h"

namespace isobath::testing {

struct Rule {
  const char* name;
  Router router;
  Causal causal;
  Choice choice = Choice::kExpert;
  Topology topology = Topology::kJoint;
  int64_t lookback = 0;
  KeptKeys cache = KeptKeys::kRouted;
  void (*change)(RoutingConfig&) = nullptr;  // the rest
};
inline constexpr Rule kRules[] = {
    {"bce", Router::kLearned, Causal::kBce},
    {"predictor", Router::kLearned, Causal::kPredictor},
    {"threshold", Router::kLearned, Causal::kThreshold},
    {"token", Router::kLearned, Causal::kNone, Choice::kToken},
    {"random", Router::kRandom, Causal::kNone},
    {"first", Router::kFirst, Causal::kNone},
    {"spaced", Router::kSpaced, Causal::kNone},
    {"staggered", Router::kLearned, Causal::kBce, Choice::kExpert, Topology::kStaggered},
    {"attention", Router::kLearned, Causal::kBce, Choice::kExpert, Topology::kAttention},
    {"mlp", Router::kLearned, Causal::kPredictor, Choice::kExpert, Topology::kMlp},
    {"lookback", Router::kLearned, Causal::kPredictor, Choice::kExpert, Topology::kJoint, 2},
    {"all_keys", Router::kLearned, Causal::kBce, Choice::kExpert, Topology::kJoint, 0, KeptKeys::kAll},
    {"all_keys_predictor", Router::kLearned, Causal::kPredictor, Choice::kExpert, Topology::kJoint, 0, KeptKeys::kAll},
    {"token_staggered", Router::kLearned, Causal::kNone, Choice::kToken, Topology::kStaggered},
    {.name = "normed_bias_tanh",
     .router = Router::kLearned,
     .causal = Causal::kBce,
     .change =
         [](RoutingConfig& r) {
           r.router_input = RouterInput::kNormed;
           r.router_bias = true;
           r.gate = Gate::kTanh;
         }},
    {.name = "threshold_offset",
     .router = Router::kLearned,
     .causal = Causal::kThreshold,
     .change = [](RoutingConfig& r) { r.router_offset = true; }}};

inline ModelConfig tiny_config(const Rule& rule = kRules[0], int64_t context = 96) {
  ModelConfig c;
  c.vocab_size = 257;
  c.hidden_size = 40;
  c.intermediate_size = 56;
  c.num_hidden_layers = 4;
  c.num_attention_heads = 4;
  c.num_key_value_heads = 2;
  c.head_dim = 10;
  c.max_position_embeddings = context;
  c.routing.topology = rule.topology;
  c.routing.capacity = {rule.router == Router::kFirst ? 0.1 : 0.5};  // of the longest context
  c.routing.router = rule.router;
  c.routing.causal = rule.causal;
  c.routing.choice = rule.choice;
  c.routing.predictor_lookback = rule.lookback;
  c.routing.cache = rule.cache;
  if (rule.choice == Choice::kToken) c.routing.gate = Gate::kSigmoid;
  if (rule.change != nullptr) rule.change(c.routing);
  resolve(c, context);
  return c;
}

// Routers start near zero: scaled up, so that what is routed where shows in the logits.
inline std::unique_ptr<Model> tiny_model(const ModelConfig& config, uint64_t seed = 7) {
  auto model = std::make_unique<Model>(config);
  initialize(model->weights, seed);
  for (size_t i = 0; i < model->weights.list().size(); i++) {
    const F32 w = model->weights.at(i);
    const WeightInfo& info = model->weights.list()[i];
    if (info.kind == Kind::kRouter)
      for (int64_t j = 0; j < w.numel(); j++) w[j] *= 50;
    if (info.kind == Kind::kRouter && info.bias) w[0] = -0.4f;
    if (info.kind == Kind::kRule)  // offsets: of a block, or of each of its experts
      for (int64_t j = 0; j < w.numel(); j++) w[j] = info.name.ends_with("offset") ? -0.2f + 0.5f * float(j) : 0.3f;
  }
  return model;
}

inline std::vector<int32_t> random_prompt(int64_t n, uint64_t seed) {
  const Rng rng(seed, Stream::kBench);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; i++) ids.push_back(int32_t(rng.below(256, uint64_t(i))));
  return ids;
}

// Prompts of several lengths, eight drawn tokens each.
inline std::vector<Request> drawn_requests(uint64_t count) {
  std::vector<Request> requests;
  for (uint64_t b = 0; b < count; b++)
    requests.push_back({.prompt = random_prompt(9 + 8 * int64_t(b), b),
                        .max_tokens = 8,
                        .stop_at_eos = false,
                        .sampling = {.seed = b},
                        .sequence_id = int64_t(b)});
  return requests;
}

struct Uncached {
  std::vector<std::vector<int32_t>> routed;  // positions, per layer
  Buffer logits;                             // (T,V)
};

// The whole sequence in one pass, without a cache, under the causal rule.
inline Uncached evaluate_uncached(Model& model, std::span<const int32_t> tokens, float depth = 0, int64_t id = 0) {
  const ModelConfig& c = model.config();
  const int64_t T = int64_t(tokens.size());
  std::vector<int32_t> token(tokens.begin(), tokens.end()), position(tokens.size()), sequence(tokens.size(), 0);
  std::iota(position.begin(), position.end(), 0);
  const int32_t begin[] = {0, int32_t(T)};
  const Batch batch{.token = {token.data(), {T}},
                    .target = {},
                    .position = {position.data(), {T}},
                    .capacity_begin = {begin, {2}},
                    .segment_begin = {begin, {2}},
                    .sequence = {sequence.data(), {T}},
                    .sequence_id = {&id, {1}}};
  model.prepare(std::max<int64_t>(T, 128));
  Activations acts(c, {.sequences = 1, .T = T}, Purpose::kForward);
  forward_blocks(model.weights.weights(), *model.products, acts, c, batch, {.by = SelectBy::kCausal, .depth = depth});
  Uncached result{{}, Buffer({T, c.vocab_size})};
  forward_logits(result.logits, model.weights.weights(), *model.products, acts, c, batch.position);
  for (int64_t l = 0; l < c.sections(); l++) {
    const Section section = c.section(l);
    const CI32 routed = section.routed && !c.keeps_all_keys(section) ? acts.section[size_t(l)].router.list.position
                                                                     : CI32(batch.position);
    const int64_t keys = section.attention() ? routed.numel() : 0;
    result.routed.emplace_back(routed.data, routed.data + keys);
  }
  return result;
}

// Products have the same bits for any number of rows with AVX-512; elsewhere within rounding (ops/linear.h).
inline bool rows_keep_their_bits() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512f");
#else
  return false;
#endif
}
inline void expect_same_logits(const float* got, const float* want, int64_t V, const std::string& what) {
  if (rows_keep_their_bits()) return expect_same_bits(got, want, V, what.c_str());
  for (int64_t i = 0; i < V; i++) ASSERT_NEAR(got[i], want[i], 1e-4) << what << " [" << i << "]";
}

// A request as an engine answered it: the logits that every token was drawn from, and what stood in the caches at the
// end (positions, per layer).
struct Traced {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<int32_t>> cached;
  Result result;
};

// Keeps what comes of a request. The trace must outlive it.
inline int64_t submit_traced(Engine& engine, const Request& request, Traced& trace) {
  auto number = std::make_shared<int64_t>(-1);
  const Listener listener{
      .on_token = [&](const Result&, CF32 row) { trace.logits.emplace_back(row.data, row.data + row.numel()); },
      .on_finish =
          [&, number](const Result& result) {
            trace.result = result;
            for (int64_t l = 0; l < int64_t(engine.statistics().layer.size()); l++)
              trace.cached.push_back(engine.cached_positions(*number, l));
          }};
  *number = engine.submit(request, listener).value();
  return *number;
}

// All at once, to the end.
inline std::vector<Traced> run_traced(Engine& engine, std::span<const Request> requests) {
  std::vector<Traced> traces(requests.size());
  for (size_t i = 0; i < requests.size(); i++) submit_traced(engine, requests[i], traces[i]);
  engine.run();
  return traces;
}

inline void expect_same_answer(const Traced& got, const Traced& want, const std::string& what) {
  EXPECT_EQ(got.result.tokens, want.result.tokens) << what;
  EXPECT_EQ(got.result.text, want.result.text) << what;
  EXPECT_EQ(got.cached, want.cached) << what;
  ASSERT_EQ(got.logits.size(), want.logits.size()) << what;
  for (size_t i = 0; i < want.logits.size(); i++)
    expect_same_bits(got.logits[i].data(), want.logits[i].data(), int64_t(want.logits[i].size()), what.c_str());
}

// Every token's logits and every layer's cache are what the uncached evaluation of the final sequence says.
inline void expect_equals_uncached(Model& model, const Traced& trace, float depth = 0, int64_t id = 0) {
  const Result& r = trace.result;
  const std::span<const int32_t> read(r.tokens.data(), r.tokens.size() - 1);
  const Uncached want = evaluate_uncached(model, read, depth, id);
  ASSERT_EQ(int64_t(trace.logits.size()), r.drawn());
  for (int64_t i = 0; i < r.drawn(); i++)
    expect_same_logits(trace.logits[size_t(i)].data(), want.logits.view().row(r.prompt_tokens - 1 + i),
                       model.config().vocab_size, "drawn token " + std::to_string(i));
  EXPECT_EQ(trace.cached, want.routed);
}

}  // namespace isobath::testing
