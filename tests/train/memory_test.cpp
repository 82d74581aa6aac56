// What a run holds is what the plan said, within 5%, for plans of 500 MB and more: what the plan does not know (the
// products' own books in the GEMM library, some 20 MB; text and batches) stays small beside them.
#include "base/memory.h"

#include <gtest/gtest.h>

#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // shadow memory is anonymous as well
#else
constexpr bool kSanitized = false;
#endif

class RunMemory : public ::testing::TestWithParam<Topology> {};
INSTANTIATE_TEST_SUITE_P(Topologies, RunMemory, ::testing::Values(Topology::kDense, Topology::kJoint),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(RunMemory, IsThatOfThePlan) {
  if (!anonymous_bytes() || kSanitized) GTEST_SKIP() << "the system does not tell, or a sanitizer blurs it";
  const TempDir dir;
  RunConfig c = tiny_run(dir, 400);
  c.model.hidden_size = 512;
  c.model.intermediate_size = 0;
  c.model.num_attention_heads = 8;
  c.model.routing.topology = GetParam();
  c.model.num_hidden_layers = GetParam() == Topology::kDense ? 5 : 6;
  c.data.context = 256;
  c.data.batch = 8;
  c.train.threads = 0;
  const Corpus corpus = corpus_of(c);

  const int64_t before = *anonymous_bytes();
  Trainer trainer(c, Tokenizer::bytes(), corpus, kPeak);
  trainer.step();
  const double held = double(*anonymous_bytes() - before), planned = double(trainer.planned_bytes());
  EXPECT_GT(planned, 5e8);
  EXPECT_NEAR(held / planned, 1, 0.05) << held / 1e6 << " MB held, " << planned / 1e6 << " MB planned";
  RecordProperty("held_mb", std::to_string(held / 1e6));
  RecordProperty("planned_mb", std::to_string(planned / 1e6));
}

}  // namespace
}  // namespace isobath
