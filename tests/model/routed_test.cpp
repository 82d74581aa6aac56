// Routing changes which rows a block works on, and nothing else (invariants 1, 2, 14 and 16 of the design).
#include "model/routed.h"

#include <gtest/gtest.h>

#include <ostream>

#include "model/network.h"
#include "support/compare.h"
#include "support/tiny_cases.h"

namespace isobath {
namespace {

using namespace isobath::testing;

// ---- invariant 1: the wrapper's pieces, with a gate array of the test's
// ---------------------------------------------------

struct Wrapped {
  const char* name;
  Topology topology;
  Part part;
};
constexpr Wrapped kWrapped[] = {
    {"Block", Topology::kJoint, Part::kBlock},
    {"StaggeredAttention", Topology::kStaggered, Part::kAttention},
    {"StaggeredMlp", Topology::kStaggered, Part::kMlp},
    {"AttentionOnly", Topology::kAttention, Part::kAttention},
    {"MlpOnly", Topology::kMlp, Part::kMlp},
};
struct GateCase {
  std::string name;
  Wrapped wrapped;
  ExpertsConfig experts;
  KeptKeys cache;
};
void PrintTo(const GateCase& c, std::ostream* out) { *out << c.name; }
std::vector<GateCase> gate_cases() {
  const std::pair<const char*, ExpertsConfig> experts[] = {
      {"", {}},
      {"OfTwoExpertsPerRow", {.experts = 4}},
      {"OfOneExpertPerRow", {.experts = 3, .per_token = 1}},
      {"OfExpertsThatChoose", {.experts = 3, .choice = Choice::kExpert, .capacity = 0.4}},
  };
  std::vector<GateCase> all;
  for (const Wrapped& wrapped : kWrapped)
    for (const auto& [name, config] : experts)
      for (const KeptKeys cache : {KeptKeys::kRouted, KeptKeys::kAll}) {
        if (cache == KeptKeys::kAll && wrapped.topology == Topology::kMlp)
          continue;  // refused: it sees all keys anyway
        all.push_back(
            {wrapped.name + std::string(name) + (cache == KeptKeys::kAll ? "AllKeys" : ""), wrapped, config, cache});
      }
  return all;
}

template <class T>
std::string case_name_of(const ::testing::TestParamInfo<T>& info) {
  return info.param.name;
}

ModelConfig config_of(const GateCase& c) {
  ModelConfig config = tiny_routed(1.0);
  config.routing.topology = c.wrapped.topology;
  config.routing.cache = c.cache;
  config.experts = c.experts;
  return config;
}
// Nothing is routed. A half stands alone only where blocks are routed: of halves the same model, whose section is then
// run over all rows by who calls.
ModelConfig dense_config_of(const GateCase& c) {
  ModelConfig config = config_of(c);
  if (c.wrapped.part == Part::kBlock) config.routing.topology = Topology::kDense;
  config.routing.cache = KeptKeys::kRouted;
  return config;
}
// Of block 1, the routed one. Its MLP's section, if it has one, comes after its attention's.
SectionContext context_of(TinyModel& model, const GateCase& c, const Batch& batch) {
  const int64_t l = c.wrapped.part == Part::kMlp ? 2 : 1;
  return {model.config,
          model.config.section(l),
          model.weights.weights().section[size_t(l)],
          model.products.section(l),
          model.acts.rope,
          model.acts.scratch,
          batch};
}

class GateArray : public ::testing::TestWithParam<GateCase> {
 protected:
  // x + gate * section(x) over the listed rows.
  Buffer routed(const Buffer& x, std::vector<int32_t> index, float gate_value) {
    Buffer y = x;
    const int64_t S = int64_t(index.size());
    Buffer gate({std::max<int64_t>(S, 1)}, gate_value);
    std::vector<int32_t> position, begin{0, 0, 0};
    for (const int32_t n : index) {
      position.push_back(batch_.view().position[n]);
      begin[1] += n < batch_.view().segment_begin[1];
    }
    begin[2] = int32_t(S);
    const CI32 runs{begin.data(), {3}};
    const RowList list{{index.data(), {S}}, {position.data(), {S}}, runs, S, runs};
    const Delta delta = forward(model_, y, list);
    residual_add_forward(y, {}, list.index, gate.view().slice(0, S), delta.first, delta.second);
    return y;
  }
  Buffer dense(const Buffer& x) {
    Buffer y = x;
    dense_forward(y, view_, [&](CF32 rows, const RowList& list) { return forward(dense_, rows, list); });
    return y;
  }
  Delta forward(TinyModel& model, CF32 x, const RowList& list) {
    const SectionContext context = context_of(model, GetParam(), view_);
    return section_forward(context, model.acts.section[size_t(context.section.index)], x, list, {});
  }
  std::vector<int32_t> all_rows() const {
    std::vector<int32_t> all(size_t(batch_.rows()));
    for (size_t n = 0; n < all.size(); n++) all[n] = int32_t(n);
    return all;
  }

  TinyModel model_{config_of(GetParam()), {.sequences = 2, .T = 9}};
  TinyModel dense_{dense_config_of(GetParam()), {.sequences = 2, .T = 9}};
  TinyBatch batch_{random_sequences({9, 6}, model_.config.vocab_size), model_.config};
  const Batch view_ = batch_.view();
  Buffer x_ = random_buffer({batch_.rows(), model_.config.hidden_size}, 11);
};
INSTANTIATE_TEST_SUITE_P(Sections, GateArray, ::testing::ValuesIn(gate_cases()), case_name_of<GateCase>);

TEST_P(GateArray, OfZerosIsTheIdentity) {
  const Buffer y = routed(x_, {0, 2, 3, 8, 9, 14}, 0);
  for (int64_t i = 0; i < x_.shape.numel(); i++) ASSERT_EQ(y[i], x_[i]) << i;  // == takes -0 for 0
}

TEST_P(GateArray, OfOnesOverAllRowsIsTheDenseSection) {
  expect_same_bits(routed(x_, all_rows(), 1), dense(x_));
  EXPECT_NE(dense(x_).values, x_.values);
}

TEST_P(GateArray, LeavesTheBitsOfOtherRows) {
  const Buffer y = routed(x_, {1, 4, 10}, 1);
  const int64_t D = model_.config.hidden_size;
  for (const int64_t n : {0, 2, 3, 5, 9, 11, 14}) expect_same_bits(y.view().row(n), x_.view().row(n), D);
  int64_t changed = 0;
  for (const int64_t n : {1, 4, 10}) changed += y[n * D] != x_[n * D];
  EXPECT_GE(changed, model_.config.experts_choose() ? 1 : 3);  // a row that no expert took may stay as it is
}

TEST_P(GateArray, OfAnEmptyListIsTheIdentity) { expect_same_bits(routed(x_, {}, 1), x_); }

// Invariant 16: router weight 0, bias 1, raw gate, C = 1 has the dense model's bits, whatever the causal rule.
TEST(Routed, UnitGateAtFullCapacityIsTheDenseModel) {
  ModelConfig config = tiny_routed(1.0);
  config.routing.router_bias = true;
  const std::vector<Sequence> sequences = random_sequences({12, 5, 9}, config.vocab_size);
  TinyModel dense(dense_twin(config), limits_for(sequences)), routed(config, limits_for(sequences));
  RouterWeights& router = routed.weights.weights().section[1].router;
  std::fill_n(router.w.data, router.w.numel(), 0.0f);
  router.bias[0] = 1;
  const TinyBatch batch(sequences, routed.config);
  EXPECT_EQ(dense.forward(batch), routed.forward(batch));
  expect_same_bits(dense.acts.x.data, routed.acts.x.data, batch.rows() * config.hidden_size);
  expect_same_bits(dense.acts.loss.data, routed.acts.loss.data, batch.rows());
  EXPECT_EQ(dense.forward(batch), routed.forward(batch, {.by = SelectBy::kCausal}));
}

// ---- invariant 2
// --------------------------------------------------------------------------------------------------------

class MaskedDense : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(Routed, MaskedDense, ::testing::ValuesIn(tiny_cases()), case_name);

// got[i] of a float array against want[i], with the tolerance of the largest value.
void expect_values(const float* got, const std::vector<double>& want, double count, const std::string& what) {
  double largest = 1;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  expect_close(std::vector<float>(got, got + want.size()), want, largest, count, what.c_str());
}

void expect_equals_reference(TinyModel& model, const TinyBatch& batch, bool by_top_k) {
  const reference::Outcome<double> want = run_reference(model, batch);
  const double count = roundings(model.config, batch.rows());
  for (int64_t l = 0; l < model.config.sections(); l++) {
    if (!model.config.section(l).routed) continue;
    const std::string where = model.config.section(l).name();
    const auto& score = want.score[size_t(l)];
    expect_values(model.router(l).score.data, score, count, where + " score");
    std::vector<double> gate;
    for (const int32_t n : model.chosen(l)) gate.push_back(want.gate[size_t(l)][size_t(n)]);
    expect_values(model.router(l).gate.data, gate, count, where + " gate");
    const RoutingConfig& routing = model.config.routing;
    if (!by_top_k || routing.router == Router::kSpaced || routing.choice == Choice::kToken) continue;
    EXPECT_EQ(choices_of(model, batch.rows())[size_t(l)].chosen,
              reference::top_k(score, batch.capacity_begin(), model.config.capacity(model.config.section(l))))
        << where;
  }
  expect_values(model.acts.x.data, want.x.back(), count, "x");
  expect_values(model.acts.loss.data, want.loss, count, "loss");
  expect_values(model.acts.entropy.data, want.entropy, count, "entropy");
}

TEST_P(MaskedDense, HasTheSameValues) {
  TinyModel model(GetParam().config, limits_for(GetParam().sequences));
  const TinyBatch batch(GetParam().sequences, model.config);
  const double loss = model.forward(batch);
  expect_equals_reference(model, batch, true);
  double sum = 0;
  for (int64_t n = 0; n < batch.rows(); n++) sum += double(model.acts.loss[n]);
  EXPECT_EQ(loss, sum);
}

class MaskedDenseCausal : public ::testing::TestWithParam<TinyCase> {};
INSTANTIATE_TEST_SUITE_P(Routed, MaskedDenseCausal, ::testing::ValuesIn(tiny_causal_cases()), case_name);

TEST_P(MaskedDenseCausal, HasTheSameValues) {
  TinyModel model(GetParam().config, limits_for(GetParam().sequences), Purpose::kForward);
  const TinyBatch batch(GetParam().sequences, model.config);
  model.forward(batch, {.by = SelectBy::kCausal, .depth = 0.1f});
  expect_equals_reference(model, batch, false);
}

TEST(Network, LogitsOfListedRowsGiveTheLoss) {
  TinyModel model(tiny_routed(), {.sequences = 2, .T = 9}, Purpose::kForward);
  const TinyBatch batch(random_sequences({9, 5}, model.config.vocab_size), model.config);
  model.forward(batch);
  const std::vector<int32_t> rows{1, 7, 10};
  const int64_t V = model.config.vocab_size;
  Buffer logits({3, V});
  forward_logits(logits, model.weights.weights(), model.products, model.acts, model.config, {rows.data(), {3}});
  for (size_t i = 0; i < rows.size(); i++) {
    const float* z = logits.view().row(int64_t(i));
    double total = 0;
    for (int64_t v = 0; v < V; v++) total += std::exp(double(z[v]));
    const double loss = std::log(total) - double(z[batch.view().target[rows[i]]]);
    EXPECT_NEAR(loss, double(model.acts.loss[rows[i]]), 1e-5);
  }
}

// ---- invariant 14
// -------------------------------------------------------------------------------------------------------

class NoRows : public ::testing::TestWithParam<GateCase> {};
INSTANTIATE_TEST_SUITE_P(Sections, NoRows, ::testing::ValuesIn(gate_cases()), case_name_of<GateCase>);

TEST_P(NoRows, GiveZeroGradients) {
  TinyModel model(config_of(GetParam()), {.sequences = 1, .T = 8});
  const TinyBatch batch(random_sequences({8}, model.config.vocab_size), model.config);
  const Batch view = batch.view();
  const SectionContext context = context_of(model, GetParam(), view);
  const int64_t l = context.section.index;
  SectionActs& acts = model.acts.section[size_t(l)];
  const Buffer x = random_buffer({8, model.config.hidden_size}, 2);
  std::vector<int32_t> none_begin{0, 0};
  int32_t unused = 0;
  const CI32 no_runs{none_begin.data(), {2}};
  const RowList none{{&unused, {0}}, {&unused, {0}}, no_runs, 0, no_runs};
  section_forward(context, acts, x, none, {});
  SectionWeights& gradient = model.gradient.weights().section[size_t(l)];
  acts.router.list = none;
  std::fill_n(acts.router.dscore.data, 8, 0.0f);
  Buffer dx = random_buffer({8, model.config.hidden_size}, 4);
  const Buffer before = dx;
  const RouterContext router{model.config, context.section, context.weights.router, context.products.fc1,
                             model.acts.scratch};
  routed_backward(dx, router, gradient.router, acts.router, acts.delta.slice(0, 0), acts.saved.slice(0, 0), x,
                  [&](F32 ddelta) { return section_backward(context, acts, gradient, ddelta, x, dx); });
  EXPECT_GT(model.gradient.list().size(), 20u);
  for (size_t i = 0; i < model.gradient.list().size(); i++)
    for (int64_t j = 0; j < model.gradient.at(i).numel(); j++)
      ASSERT_EQ(model.gradient.at(i)[j], 0.0f) << model.gradient.list()[i].name;
  for (int64_t i = 0; i < dx.shape.numel(); i++) ASSERT_EQ(dx[i], before[i]);
}

}  // namespace
}  // namespace isobath
