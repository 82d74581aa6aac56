// What is planned is what the run does: executed FLOPs are those that the kernels count, bytes those of the objects
// that a run constructs.
#include "model/plan_table.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/count.h"
#include "support/tiny_model.h"

namespace isobath {
namespace {

using namespace isobath::testing;

constexpr BatchLimits kLimits{.sequences = 3, .T = 21};

struct Planned : ::testing::TestWithParam<ModelConfig> {
  ModelConfig config() const {
    ModelConfig c = GetParam();
    resolve(c, kLimits.T);
    return c;
  }
};

std::vector<ModelConfig> configs() {
  ModelConfig predictor = tiny_routed(0.3, 4), tied = tiny_config(2);
  predictor.routing.causal = Causal::kPredictor;
  predictor.routing.predictor_width = 5;
  predictor.routing.router_bias = true;
  tied.tie_word_embeddings = true;
  return {tiny_config(), tied, tiny_routed(), predictor};
}
std::string config_name(const ::testing::TestParamInfo<ModelConfig>& info) {
  const char* names[] = {"Dense", "DenseTied", "JointBce", "JointPredictor"};
  return names[info.index];
}
INSTANTIATE_TEST_SUITE_P(PlanTable, Planned, ::testing::ValuesIn(configs()), config_name);

TEST_P(Planned, ExecutedFlopsAreWhatTheKernelsCount) {
  const std::vector<Sequence> sequences =
      random_sequences(std::vector<int64_t>(size_t(kLimits.sequences), kLimits.T), config().vocab_size);
  TinyModel model(config(), kLimits);
  executed_multiply_adds = 0;
  model.step(TinyBatch(sequences, config()));
  const PlanTable table = plan_table(config(), kLimits);
  EXPECT_DOUBLE_EQ(table.total.executed_flops * double(kLimits.rows()), 2 * double(executed_multiply_adds));
}

TEST_P(Planned, BytesAreThoseOfWhatARunConstructs) {
  const ModelConfig c = config();
  const PlanTable table = plan_table(c, kLimits);
  const WeightSet weights(c);
  const Activations acts(c, kLimits, Purpose::kTrain), evaluation(c, kLimits, Purpose::kForward);
  const Products products(c, {.max_rows = kLimits.rows(),
                              .exact = acts.list_sizes(),
                              .head_rows = head_chunk(c, kLimits.rows()),
                              .backward = true});
  EXPECT_EQ(table.weight_bytes, 4 * weights.bytes());
  EXPECT_EQ(table.packed_bytes, products.bytes());
  EXPECT_EQ(table.total.activation_bytes, acts.plan().bytes());
  EXPECT_EQ(table.evaluation_bytes, evaluation.plan().bytes());
  EXPECT_EQ(table.training_bytes(), 4 * weights.bytes() + products.bytes() + acts.plan().bytes());
}

TEST_P(Planned, RowsAddUp) {
  const ModelConfig c = config();
  const PlanTable table = plan_table(c, kLimits);
  EXPECT_EQ(table.total.parameters, count_weights(c));
  EXPECT_EQ(table.block.size(), size_t(c.num_hidden_layers));
  PlanRow sum = table.rest;
  for (const PlanRow& row : table.block) {
    sum.parameters += row.parameters;
    sum.activation_bytes += row.activation_bytes;
    sum.model_flops += row.model_flops;
    EXPECT_GT(row.activation_bytes, 0) << row.block;
  }
  EXPECT_EQ(sum.parameters, table.total.parameters);
  EXPECT_EQ(sum.activation_bytes, table.total.activation_bytes);
  EXPECT_DOUBLE_EQ(sum.model_flops * double(kLimits.rows()),
                   double(model_flops(c, kLimits.sequences, kLimits.T).forward()));
}

}  // namespace
}  // namespace isobath
