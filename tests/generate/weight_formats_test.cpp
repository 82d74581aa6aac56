// Engines whose weights are packed in fewer bits.
#include "generate/caches.h"
#include "generate/tiny_experts.h"

namespace isobath {
namespace {

using namespace testing;

bool is_packed(Kind kind) { return kind == Kind::kMatrix || kind == Kind::kOutput; }

struct Named {
  std::string name;
  ModelConfig config;
};
std::vector<Named> models() {
  std::vector<Named> all;
  for (const Rule& rule : kRules) all.push_back({rule.name, tiny_config(rule)});
  for (const ExpertVariant& v : variants_that_generate()) all.push_back({v.name, tiny_config(v)});
  Rule all_keys = kRules[7];
  all_keys.cache = KeptKeys::kAll;
  all.push_back({"staggered_all_keys", tiny_config(all_keys)});
  ModelConfig staged = tiny_config({"", {.experts = 3}, true});
  staged.routing.cache = KeptKeys::kAll;
  all.push_back({"StagedAllKeys", staged});
  return all;
}
class EveryModel : public ::testing::TestWithParam<Named> {};
INSTANTIATE_TEST_SUITE_P(WeightFormats, EveryModel, ::testing::ValuesIn(models()),
                         [](const auto& info) { return info.param.name; });
void PrintTo(const Named& model, std::ostream* out) { *out << model.name; }

constexpr WeightFormat kFewerBits[] = {WeightFormat::kBf16, WeightFormat::kInt8};

// What bf16 does to a model is that its matrices are rounded: routers, norms and the embedding keep their bits.
TEST_P(EveryModel, InBf16IsTheModelWithRoundedMatrices) {
  const auto model = tiny_model(GetParam().config), rounded = tiny_model(GetParam().config);
  for (size_t i = 0; i < rounded->weights.list().size(); i++) {
    const F32 w = rounded->weights.at(i);
    for (int64_t j = 0; j < w.numel() && is_packed(rounded->weights.list()[i].kind); j++)
      w[j] = to_f32(to_stored<Bf16>(w[j]));
  }
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 3, .max_rows = 11, .weights = WeightFormat::kBf16});
  const auto requests = drawn_requests(3);
  const std::vector<Traced> traces = run_traced(engine, requests);
  for (size_t b = 0; b < 3; b++) expect_equals_uncached(*rounded, traces[b], 0, requests[b].sequence_id);
}

TEST_P(EveryModel, AnswersDoNotDependOnTheBatch) {
  for (const WeightFormat format : kFewerBits) {
    SCOPED_TRACE(name_of(format));
    expect_batch_equals_each_alone(GetParam().config, {.weights = format});
  }
}

TEST_P(EveryModel, RollbackEqualsFreshGeneration) {
  for (const WeightFormat format : kFewerBits) {
    SCOPED_TRACE(name_of(format));
    expect_rollback_equals_fresh_generation(GetParam().config, {.weights = format});
  }
}

// By position, so that rounding changes no choice.
TEST(WeightFormats, FewerBitsAreLessMemoryAndNearLogits) {
  const auto model = tiny_model(tiny_config(kRules[6]));
  const Request request{.prompt = random_prompt(30, 1), .max_tokens = 1};
  Engine exact(*model, Tokenizer::bytes(), {});
  const Traced want = run_traced(exact, {&request, 1})[0];
  int64_t bytes = exact.weight_bytes();
  for (const WeightFormat format : kFewerBits) {
    Engine engine(*model, Tokenizer::bytes(), {.weights = format});
    const Traced got = run_traced(engine, {&request, 1})[0];
    double error = 0, size = 0;
    for (size_t i = 0; i < 257; i++) {
      error += std::pow(got.logits[0][i] - want.logits[0][i], 2);
      size += std::pow(want.logits[0][i], 2);
    }
    EXPECT_LT(error, 0.04 * 0.04 * size) << name_of(format);
    EXPECT_GT(error, 0) << name_of(format);
    EXPECT_LT(engine.weight_bytes(), bytes) << name_of(format);
    bytes = engine.weight_bytes();
  }
}

}  // namespace
}  // namespace isobath
