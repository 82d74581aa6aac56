// Storage::kBf16 over a whole model: gradients near those of fp32, bits that depend on nothing but the numbers, half
// the memory of what is kept.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/rows.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

TinyModel model_of(const ModelConfig& config, const BatchLimits& limits, const MemoryOptions& memory) {
  return TinyModel(config, limits, Purpose::kTrain, 3, memory);
}

class Bf16Step : public ::testing::TestWithParam<TinyCase> {
 protected:
  TinyModel model(const MemoryOptions& memory) const {
    return model_of(GetParam().config, limits_for(GetParam().sequences), memory);
  }
};
INSTANTIATE_TEST_SUITE_P(Step, Bf16Step, ::testing::ValuesIn(tiny_cases()), case_name);

// Each of the arrays that a block keeps is off by at most 2^-8 of its numbers, and every term of a gradient has passed
// through those of all blocks at most once on the way forward and once on the way back: 2 * 6 L factors of 1 + 2^-8.
// The terms of a weight's gradient are bounded by its largest one; a softmax over one key has none of its own.
TEST_P(Bf16Step, GradientsAreThoseOfFp32WithinTheRoundings) {
  TinyModel wide = model({}), narrow = model({.storage = Storage::kBf16});
  const TinyBatch batch(GetParam().sequences, wide.config);
  const double loss = wide.step(batch, {.step = 3}), rounded = narrow.step(batch, {.step = 3});
  for (int64_t l = 0; l < wide.config.sections(); l++)
    if (wide.config.section(l).routed) {
      ASSERT_EQ(wide.chosen(l), narrow.chosen(l)) << "another choice is another model";
    }
  const double roundings = 2.0 * 6 * double(wide.config.num_hidden_layers) / 256;
  EXPECT_NE(rounded, loss);
  EXPECT_NEAR(rounded, loss, roundings * loss);
  double all = 0;
  for (const float g : wide.gradients()) all = std::max(all, std::abs(double(g)));
  for (size_t i = 0; i < wide.gradient.list().size(); i++) {
    const F32 want = wide.gradient.at(i), got = narrow.gradient.at(i);
    double largest = 1e-3 * all;
    for (int64_t j = 0; j < want.numel(); j++) largest = std::max(largest, std::abs(double(want[j])));
    for (int64_t j = 0; j < want.numel(); j++)
      ASSERT_NEAR(got[j], want[j], roundings * largest) << wide.gradient.list()[i].name << " [" << j << "]";
  }
}

// What recompute makes again it makes of the rounded inputs, as forward did: so forward used them, and not the numbers
// before rounding.
TEST_P(Bf16Step, HasTheSameBitsWithRecompute) {
  TinyModel kept = model({.storage = Storage::kBf16}),
            again = model({.recompute = Recompute::kBlocks, .storage = Storage::kBf16});
  const TinyBatch batch(GetParam().sequences, kept.config);
  for (int64_t step = 0; step < 2; step++) {
    EXPECT_EQ(kept.step(batch, {.step = step}), again.step(batch, {.step = step}));
    const std::vector<float> want = kept.gradients(), got = again.gradients();
    expect_same_bits(got.data(), want.data(), int64_t(want.size()), "gradient");
  }
}

TEST(Bf16Gradients, HaveTheSameBitsWithOneThreadAndTwo) {
  const std::vector<Sequence> sequences = random_sequences({70, 33}, tiny_config().vocab_size);
  ModelConfig config = tiny_routed(0.3);
  config.max_position_embeddings = 128;
  const auto gradients = [&](int threads) {
    return with_threads(threads, [&] {
      TinyModel model = model_of(config, limits_for(sequences), {.storage = Storage::kBf16});
      model.step(TinyBatch(sequences, model.config));
      return model.gradients();
    });
  };
  const std::vector<float> one = gradients(1), two = gradients(2);
  expect_same_bits(one.data(), two.data(), int64_t(one.size()));
}

// A forward pass keeps nothing, and so rounds nothing.
TEST(Bf16Evaluation, IsThatOfFp32) {
  const std::vector<Sequence> sequences = random_sequences({21, 9}, tiny_config().vocab_size);
  const auto loss = [&](const MemoryOptions& memory) {
    TinyModel model(tiny_routed(), limits_for(sequences), Purpose::kForward, 3, memory);
    return model.forward(TinyBatch(sequences, model.config));
  };
  EXPECT_EQ(loss({.storage = Storage::kBf16}), loss({}));
}

int64_t planned_bytes(const ModelConfig& config, const MemoryOptions& memory) {
  return Activations(config, {.sequences = 1, .T = 2048}, Purpose::kTrain, Allocate::kNo, memory).plan().bytes();
}

TEST(Bf16Memory, OfAModelOfThePapersSizeIsNearHalf) {
  ModelConfig config;  // configs/paper-220m.toml
  config.vocab_size = 16000, config.hidden_size = 1024, config.num_hidden_layers = 16, config.num_attention_heads = 16;
  config.routing.topology = Topology::kJoint;
  resolve(config, 2048);
  for (const ModelConfig& c : {config, dense_twin(config)}) {
    const double f32 = double(planned_bytes(c, {}));
    EXPECT_LE(double(planned_bytes(c, {.storage = Storage::kBf16})), 0.55 * f32);
    EXPECT_LE(double(planned_bytes(c, {.recompute = Recompute::kBlocks, .storage = Storage::kBf16})), 0.25 * f32);
  }
}

}  // namespace
}  // namespace isobath
