// What is planned is what the run does: executed FLOPs are those that the kernels count, bytes those of the objects
// that a run constructs.
#include "model/plan_table.h"

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <vector>

#include "base/work.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

constexpr BatchLimits kLimits{.sequences = 3, .T = 21};

std::vector<TinyCase> cases() {
  ModelConfig predictor = tiny_routed(0.3, 4), tied = tiny_config(2);
  predictor.routing.causal = Causal::kPredictor;
  predictor.routing.predictor_width = 5;
  predictor.routing.router_bias = true;
  tied.tie_word_embeddings = true;
  const std::vector<Sequence> sequences =
      random_sequences(std::vector<int64_t>(size_t(kLimits.sequences), kLimits.T), tied.vocab_size);
  std::vector<TinyCase> all{{"Dense", tiny_config(), sequences},
                            {"DenseTied", tied, sequences},
                            {"JointBce", tiny_routed(), sequences},
                            {"JointPredictor", predictor, sequences}};
  const auto add = [&](const char* name, ModelConfig config, const std::function<void(ModelConfig&)>& change) {
    change(config);
    all.push_back({name, config, sequences});
  };
  const auto experts = [](ModelConfig& c) { c.experts.experts = 3; };
  add("Staggered", tiny_routed(0.3), [](auto& c) { c.routing.topology = Topology::kStaggered; });
  add("AttentionOnly", tiny_routed(0.3), [](auto& c) { c.routing.topology = Topology::kAttention; });
  add("MlpOnly", tiny_routed(0.3), [](auto& c) { c.routing.topology = Topology::kMlp; });
  add("AllKeys", tiny_routed(0.3), [](auto& c) { c.routing.cache = KeptKeys::kAll; });
  add("Experts", tiny_config(2), experts);
  add("StagedExperts", tiny_routed(0.3), experts);
  for (TinyCase& c : all) resolve(c.config, kLimits.T);
  return all;
}
class Planned : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(PlanTable, Planned, ::testing::ValuesIn(cases()), case_name);

const MemoryOptions kMemory[] = {
    {},
    {.recompute = Recompute::kBlocks},
    {.storage = Storage::kBf16},
    {.recompute = Recompute::kBlocks, .storage = Storage::kBf16, .packing = Packing::kProduct}};

// With cache = all, bf16 and recompute together are refused.
std::vector<MemoryOptions> memory_of(const ModelConfig& c) {
  std::vector<MemoryOptions> all(std::begin(kMemory), std::end(kMemory));
  if (c.keeps_all_keys()) all.pop_back();
  return all;
}

TEST_P(Planned, ExecutedFlopsAreWhatTheKernelsCount) {
  const ModelConfig& c = GetParam().config;
  for (const MemoryOptions& memory : memory_of(c)) {
    TinyModel model(c, kLimits, Purpose::kTrain, 3, memory);
    executed_multiply_adds = 0;
    model.step(TinyBatch(GetParam().sequences, c));
    const PlanTable table = plan_table(c, kLimits, memory);
    const double planned = table.total.executed_flops * double(kLimits.rows()),
                 counted = 2 * double(executed_multiply_adds);
    if (c.keeps_all_keys())  // how many keys a row sees depends on which rows were chosen
      EXPECT_NEAR(planned, counted, 0.02 * counted);
    else
      EXPECT_DOUBLE_EQ(planned, counted);
  }
}

TEST_P(Planned, BytesAreThoseOfWhatARunConstructs) {
  const ModelConfig& c = GetParam().config;
  const WeightSet weights(c);
  const Activations evaluation(c, kLimits, Purpose::kForward);
  for (const MemoryOptions& memory : memory_of(c)) {
    const PlanTable table = plan_table(c, kLimits, memory);
    const Activations acts(c, kLimits, Purpose::kTrain, Allocate::kYes, memory);
    const Products products(c, {.max_rows = kLimits.rows(),
                                .exact = acts.list_sizes(),
                                .head_rows = head_chunk(c, kLimits.rows()),
                                .backward = true,
                                .packing = memory.packing});
    EXPECT_EQ(table.weight_bytes, 4 * weights.bytes());
    EXPECT_EQ(table.packed_bytes, products.bytes());
    EXPECT_EQ(table.total.activation_bytes, acts.plan().bytes());
    EXPECT_EQ(table.evaluation_bytes, evaluation.plan().bytes());
    EXPECT_EQ(table.training_bytes(), 4 * weights.bytes() + products.bytes() + acts.plan().bytes());
  }
}

// Recompute costs executed FLOPs and saves activations; budgets do not see it.
TEST_P(Planned, RecomputeIsWorkForMemory) {
  const ModelConfig& c = GetParam().config;
  const PlanTable kept = plan_table(c, kLimits), again = plan_table(c, kLimits, {.recompute = Recompute::kBlocks});
  EXPECT_EQ(again.total.model_flops, kept.total.model_flops);
  EXPECT_GT(again.total.executed_flops, 1.1 * kept.total.executed_flops);
  EXPECT_LT(again.total.executed_flops, 1.34 * kept.total.executed_flops);
  EXPECT_LT(again.total.activation_bytes, kept.total.activation_bytes);
  EXPECT_EQ(again.evaluation_bytes, kept.evaluation_bytes);
}

TEST_P(Planned, RowsAddUp) {
  const ModelConfig& c = GetParam().config;
  const PlanTable table = plan_table(c, kLimits);
  EXPECT_EQ(table.total.parameters, count_weights(c));
  EXPECT_EQ(table.section.size(), size_t(c.sections()));
  PlanRow sum = table.rest;
  for (const PlanRow& row : table.section) {
    sum.parameters += row.parameters;
    sum.activation_bytes += row.activation_bytes;
    sum.model_flops += row.model_flops;
    EXPECT_GT(row.activation_bytes, 0) << row.section.name();
  }
  EXPECT_EQ(sum.parameters, table.total.parameters);
  EXPECT_EQ(sum.activation_bytes, table.total.activation_bytes);
  EXPECT_DOUBLE_EQ(sum.model_flops * double(kLimits.rows()),
                   double(model_flops(c, kLimits.sequences, kLimits.T).forward()));
}

}  // namespace
}  // namespace isobath
