// With Recompute::kBlocks, or weights that are packed before each product, a step is the same to the bit: losses,
// picks, statistics and every gradient.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

const MemoryOptions kSaving{.recompute = Recompute::kBlocks, .packing = Packing::kProduct};

class Recomputed : public ::testing::TestWithParam<TinyCase> {
 protected:
  TinyModel model(const MemoryOptions& memory) const {
    return TinyModel(GetParam().config, limits_for(GetParam().sequences), Purpose::kTrain, 3, memory);
  }
};
INSTANTIATE_TEST_SUITE_P(Step, Recomputed, ::testing::ValuesIn(tiny_cases()), case_name);

TEST_P(Recomputed, StepHasTheSameBits) {
  TinyModel kept = model({}), again = model(kSaving);
  const TinyBatch batch(GetParam().sequences, kept.config);
  for (int64_t step = 0; step < 2; step++) {  // the second finds what the first left in the shared buffers
    EXPECT_EQ(kept.step(batch, {.step = step}), again.step(batch, {.step = step}));
    expect_same_bits(kept.acts.loss.data, again.acts.loss.data, batch.rows(), "loss");
    for (int64_t l = 0; l < kept.config.sections(); l++) {
      if (!kept.config.section(l).routed) continue;
      EXPECT_EQ(kept.chosen(l), again.chosen(l)) << l;
      EXPECT_EQ(kept.router(l).auxiliary_sum, again.router(l).auxiliary_sum) << l;
    }
    const std::vector<float> want = kept.gradients(), got = again.gradients();
    ASSERT_EQ(got.size(), want.size());
    expect_same_bits(got.data(), want.data(), int64_t(want.size()), "gradient");
  }
}

TEST_P(Recomputed, MicroBatchesHaveTheSameBits) {
  TinyModel kept = model({}), again = model(kSaving);
  const TinyBatch all(GetParam().sequences, kept.config);
  const StepScale scale{.targets = all.targets(), .rows = all.rows()};
  for (TinyModel* m : {&kept, &again}) {
    fill(m->gradient, 0);
    for (const Sequence& sequence : GetParam().sequences) m->add_step(TinyBatch({sequence}, m->config), {}, scale);
  }
  const std::vector<float> want = kept.gradients(), got = again.gradients();
  expect_same_bits(got.data(), want.data(), int64_t(want.size()), "gradient");
}

}  // namespace
}  // namespace isobath
