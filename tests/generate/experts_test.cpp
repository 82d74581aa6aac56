// Generation from mixtures of experts: with caches and in batches it is the uncached evaluation under the same causal
// rules, bit for bit.
#include "generate/tiny_model.h"

namespace isobath {
namespace {

using namespace testing;

struct Variant {
  const char* name;
  ExpertsConfig experts;
  bool staged = false;
};
const Variant kVariants[] = {
    {"TwoPerToken", {.experts = 4}},
    {"OnePerToken", {.experts = 3, .per_token = 1}},
    {"LoweredCapacity", {.experts = 3, .capacity_factor = 0.5}},
    {"ExpertChoice", {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4}},
    {"Integrated", {.experts = 3, .per_token = 1, .no_ops = 2}},
    {"IntegratedBounded", {.experts = 3, .per_token = 1, .no_ops = 1, .no_op_capacity = 0.1}},
    {"Staged", {.experts = 3}, true},
    {"StagedExpertChoice", {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4}, true},
};

ModelConfig config_of(const Variant& v) {
  ModelConfig c = tiny_config();
  c.experts = v.experts;
  if (!v.staged) c.routing = {};
  resolve(c, c.max_position_embeddings);
  return c;
}

std::vector<Request> requests_of(int64_t B) {
  std::vector<Request> requests;
  const int64_t lengths[] = {11, 1, 26};
  for (int64_t b = 0; b < B; b++)
    requests.push_back({.prompt = random_prompt(lengths[b], uint64_t(b + 1)),
                        .max_tokens = 10 + b,
                        .stop = {},
                        .stop_at_eos = false,
                        .sampling = {.temperature = 1, .seed = uint64_t(b + 10)}});
  return requests;
}

class ExpertGeneration : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(Variants, ExpertGeneration, ::testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ExpertGeneration, EqualsTheUncachedEvaluation) {
  const auto model = tiny_model(config_of(GetParam()));
  const auto requests = requests_of(3);
  for (const float depth : {0.0f, 0.7f})
    for (const int64_t max_rows : {5, 512}) {
      Engine engine(*model, Tokenizer::bytes(), {.sequences = 3, .max_rows = max_rows, .depth = depth});
      for (const Traced& trace : run_traced(engine, requests)) expect_equals_uncached(*model, trace, depth);
    }
}

TEST_P(ExpertGeneration, InABatchEqualsEachAlone) {
  const auto model = tiny_model(config_of(GetParam()));
  const auto requests = requests_of(3);
  Engine together(*model, Tokenizer::bytes(), {.sequences = 3}), alone(*model, Tokenizer::bytes(), {});
  const std::vector<Traced> batch = run_traced(together, requests);
  for (size_t b = 0; b < requests.size(); b++)
    expect_same_answer(batch[b], run_traced(alone, {&requests[b], 1})[0], "sequence " + std::to_string(b));
}

// Experts that choose know the whole sequence; without a rule there is nothing to generate by.
TEST(ExpertGeneration, WithoutARuleIsRefused) {
  ModelConfig c = config_of(kVariants[3]);
  c.experts.causal = Causal::kNone;
  const auto model = tiny_model(c);
  EXPECT_THROW(Engine(*model, Tokenizer::bytes(), {}), Error);
}

}  // namespace
}  // namespace isobath
