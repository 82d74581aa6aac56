// Engines whose weights are packed in fewer bits.
#include "generate/tiny_model.h"

namespace isobath {
namespace {

using namespace testing;

bool is_packed(Kind kind) { return kind == Kind::kMatrix || kind == Kind::kOutput; }

// What bf16 does to a model is that its matrices are rounded: routers, norms and the embedding keep their bits.
TEST(WeightFormats, Bf16IsTheModelWithRoundedMatrices) {
  for (const Rule& rule : kRules) {
    const auto model = tiny_model(tiny_config(rule)), rounded = tiny_model(tiny_config(rule));
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
}

TEST(WeightFormats, AnswersDoNotDependOnTheBatch) {
  const auto model = tiny_model(tiny_config());
  const auto requests = drawn_requests(3);
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    Engine together(*model, Tokenizer::bytes(), {.sequences = 3, .max_rows = 20, .weights = format});
    Engine alone(*model, Tokenizer::bytes(), {.weights = format});
    const std::vector<Traced> batch = run_traced(together, requests);
    for (size_t b = 0; b < 3; b++)
      expect_same_answer(batch[b], run_traced(alone, {&requests[b], 1})[0], std::string(name_of(format)));
  }
}

// By position, so that rounding changes no choice.
TEST(WeightFormats, FewerBitsAreLessMemoryAndNearLogits) {
  const auto model = tiny_model(tiny_config(kRules[6]));
  const Request request{.prompt = random_prompt(30, 1), .max_tokens = 1};
  Engine exact(*model, Tokenizer::bytes(), {});
  const Traced want = run_traced(exact, {&request, 1})[0];
  int64_t bytes = exact.weight_bytes();
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8}) {
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
