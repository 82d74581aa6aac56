// What is planned is what the run does: executed FLOPs are those that the kernels count, bytes those of the objects
// that a run constructs.
#include "model/plan_table.h"

#include <gtest/gtest.h>

#include <cmath>
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
  const auto all_keys = [](ModelConfig& c) { c.routing.cache = KeptKeys::kAll; };
  const auto choose = [](ModelConfig& c) { c.experts = {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4}; };
  add("StaggeredAllKeys", tiny_routed(0.3), [=](auto& c) { c.routing.topology = Topology::kStaggered, all_keys(c); });
  add("AttentionOnlyAllKeys", tiny_routed(0.3),
      [=](auto& c) { c.routing.topology = Topology::kAttention, all_keys(c); });
  add("OneExpertEach", tiny_config(2), [](auto& c) { c.experts = {.experts = 4, .per_token = 1}; });
  add("DroppingExperts", tiny_config(2), [](auto& c) { c.experts = {.experts = 3, .capacity_factor = 0.8}; });
  add("ExpertsThatChoose", tiny_config(2), choose);
  add("StagedExpertsThatChoose", tiny_routed(0.6), choose);
  add("Integrated", tiny_config(2), [](auto& c) { c.experts = {.experts = 3, .per_token = 1, .no_ops = 2}; });
  add("IntegratedBounded", tiny_config(2),
      [](auto& c) { c.experts = {.experts = 3, .per_token = 1, .no_ops = 1, .no_op_capacity = 0.2}; });
  add("StaggeredExperts", tiny_routed(0.3), [=](auto& c) { experts(c), c.routing.topology = Topology::kStaggered; });
  add("StagedExpertsAllKeys", tiny_routed(0.3), [=](auto& c) { experts(c), all_keys(c); });
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

// Whether it is known beforehand how many rows the experts will work on. What is dropped or skips is planned as if it
// were not.
bool knows_expert_rows(const ModelConfig& c) {
  return !c.has_experts() || c.experts_choose() || (c.experts.capacity_factor == 0 && c.experts.no_ops == 0);
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
    else if (!knows_expert_rows(c))
      EXPECT_TRUE(counted <= planned && counted > 0.6 * planned) << counted << " of " << planned;
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

// ---- each row of the table, by formulas of its own

int64_t parameters_of(const ModelConfig& c, const Section& section) {
  const int64_t D = c.hidden_size, mlp = 3 * D * c.intermediate_size, P = c.predictor_width();
  int64_t count = 0;
  if (section.attention()) count += D + 2 * D * (c.heads().q_cols() + c.heads().kv_cols());
  if (section.mlp()) count += D + (c.has_experts() ? c.experts.experts * mlp + c.experts.outputs() * D : mlp);
  if (section.routed) count += D + (c.routing.router_bias ? 1 : 0) + (c.has_predictor() ? (D + 1) * P + P + 1 : 0);
  return count;
}

// Multiply-adds of the section's products for one sequence of T tokens, attention's square not halved.
int64_t multiply_adds_of(const ModelConfig& c, const Section& section, int64_t T) {
  const int64_t D = c.hidden_size, P = c.predictor_width(), q = c.heads().q_cols(), kv = c.heads().kv_cols();
  const auto part = [](double share, int64_t n) { return int64_t(share * double(n) + 1e-9); };
  const int64_t k = section.routed ? part(c.routing.capacity[0], T) : T, keys = c.keeps_all_keys(section) ? T : k;
  const ExpertsConfig& e = c.experts;
  const int64_t room = int64_t(std::ceil(e.capacity_factor * double(e.per_token * k) / double(e.experts)));
  const int64_t through = !c.has_experts()         ? k
                          : c.experts_choose()     ? e.experts * part(e.capacity, k)
                          : e.capacity_factor == 0 ? e.per_token * k
                                                   : std::min(e.per_token * k, e.experts * room);
  int64_t count = 0;
  if (section.attention()) count += D * (2 * k * q + 2 * keys * kv) + 2 * k * keys * q;
  if (section.mlp()) count += through * 3 * D * c.intermediate_size;
  if (section.mlp() && c.has_experts()) count += k * D * e.outputs();
  if (section.routed) count += T * (D + (c.has_predictor() ? D * P + P : 0));
  return count;
}

TEST_P(Planned, RowsSayParametersAndModelFlops) {
  const ModelConfig& c = GetParam().config;
  const PlanTable table = plan_table(c, kLimits);
  const WeightSet weights(c);
  for (size_t l = 0; l < table.section.size(); l++) {
    const PlanRow& row = table.section[l];
    SCOPED_TRACE(row.section.name());
    EXPECT_EQ(row.parameters, parameters_of(c, row.section));
    int64_t listed = 0;
    for (const WeightInfo& info : weights.list()) listed += info.section == int64_t(l) ? info.shape.numel() : 0;
    EXPECT_EQ(row.parameters, listed);
    EXPECT_DOUBLE_EQ(row.model_flops * double(kLimits.T), 2 * double(multiply_adds_of(c, row.section, kLimits.T)));
    EXPECT_DOUBLE_EQ(row.training_flops(), 3 * row.model_flops);
  }
}

// Keys and values of the rows that a step chose are those that the table says, but for the part of a row that a
// capacity leaves over.
TEST_P(Planned, RowsSayKeysAndValues) {
  const ModelConfig& c = GetParam().config;
  const PlanTable table = plan_table(c, kLimits);
  TinyModel model(c, kLimits);
  model.step(TinyBatch(GetParam().sequences, c));
  const double row_bytes = 2 * 4 * double(c.num_key_value_heads * c.head_dim);
  double total = 0;
  for (size_t l = 0; l < table.section.size(); l++) {
    const Section section = table.section[l].section;
    SCOPED_TRACE(section.name());
    const double planned = table.section[l].kv_bytes * double(kLimits.rows());
    const double rows = double(model.acts.section[l].list.rows);
    if (!section.attention())
      EXPECT_EQ(planned, 0);
    else if (!section.routed || c.keeps_all_keys(section))
      EXPECT_DOUBLE_EQ(planned, double(kLimits.rows()) * row_bytes);
    else
      EXPECT_TRUE(planned >= rows * row_bytes && planned < (rows + double(kLimits.sequences)) * row_bytes) << planned;
    total += table.section[l].kv_bytes;
  }
  EXPECT_DOUBLE_EQ(table.total.kv_bytes, total);
  EXPECT_DOUBLE_EQ(table.total.kv_bytes, kv_bytes_per_token(c));
}

}  // namespace
}  // namespace isobath
