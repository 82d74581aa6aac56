// Who was given to which expert, token by token, against the router's weights and the rules of docs/design.md.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "lab/trace.h"
#include "model/network.h"
#include "support/expert_variants.h"

namespace isobath {
namespace {

using testing::ExpertVariant;
using testing::kExpertVariants;

constexpr int64_t kWindow = 16;
using Given = std::vector<std::vector<uint8_t>>;  // outputs by row

ModelConfig config_of(const ExpertVariant& variant) {
  ModelConfig c;
  c.vocab_size = 257;
  c.hidden_size = 16;
  c.num_hidden_layers = 3;
  c.experts = variant.experts;
  if (variant.staged) {
    c.routing.topology = Topology::kJoint;
    c.routing.capacity = {0.6};
  }
  resolve(c, kWindow);
  return c;
}

// Before anything is read, with the setting that is missing and the way out.
TEST(TraceOfExperts, ARuleThatNobodyTrainedIsNotFollowed) {
  ModelConfig c;
  c.vocab_size = 257;
  c.hidden_size = 16;
  c.num_hidden_layers = 2;
  c.experts = {.experts = 2, .choice = Choice::kExpert, .causal = Causal::kNone};
  resolve(c, kWindow);
  EXPECT_FALSE(c.has_causal_rule());
  const Model model(c);
  try {
    trace_text(model, std::vector<int32_t>{1, 2, 3}, {.by = SelectBy::kCausal});
    FAIL() << "read";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("experts_causal = bce"), std::string::npos) << error.what();
  }
}

// Routers whose logits are of size 1.
std::unique_ptr<Model> ready(const ModelConfig& config) {
  auto model = std::make_unique<Model>(config);
  initialize(model->weights, 3);
  for (SectionWeights& s : model->weights.weights().section)
    for (const F32 w : {s.expert_router, s.router.w})
      for (int64_t i = 0; !w.empty() && i < w.numel(); i++) w[i] *= 20;
  for (SectionWeights& s : model->weights.weights().section)
    for (int64_t e = 0; !s.expert_offset.empty() && e < s.expert_offset.numel(); e++)
      s.expert_offset[e] = 0.4f - 0.3f * float(e);
  model->prepare(kWindow);
  return model;
}

// The first blocks of a model, up to `last`.
std::unique_ptr<Model> beginning_of(const Model& model, int64_t last) {
  ModelConfig config = model.config();
  config.num_hidden_layers = last + 1;
  if (config.routing.topology != Topology::kDense && last == 0) {  // whose first block is dense
    config.routing = {};
    config.routing.every = 2;
  }
  auto cut = std::make_unique<Model>(config);
  for (size_t i = 0; i < cut->weights.list().size(); i++)
    for (size_t j = 0; j < model.weights.list().size(); j++)
      if (model.weights.list()[j].name == cut->weights.list()[i].name)
        std::copy_n(model.weights.at(j).data, model.weights.at(j).numel(), cut->weights.at(i).data);
  cut->prepare(kWindow);
  return cut;
}

// W (norm2 of the rows that reached the experts of the last block), in float64.
std::vector<std::vector<double>> logits_of(const Model& model, const Activations& acts) {
  const SectionActs& b = acts.section.back();
  const SectionWeights& w = model.weights.weights().section.back();
  std::vector<std::vector<double>> logits;
  const CF32 z = b.z.as<float>();
  for (int64_t s = 0; s < b.list.rows; s++) {
    const float* row = z.row(s);
    const int64_t D = z.cols();
    const double square = std::inner_product(row, row + D, row, 0.0);
    const double rstd = 1 / std::sqrt(square / double(D) + model.config().rms_norm_eps);
    logits.emplace_back();
    for (int64_t o = 0; o < w.expert_router.rows(); o++) {
      double sum = 0;
      for (int64_t d = 0; d < D; d++)
        sum += double(row[d]) * rstd * double(w.norm2[d]) * double(w.expert_router.row(o)[d]);
      logits.back().push_back(sum);
    }
  }
  return logits;
}

Given token_choice(const std::vector<std::vector<double>>& logits, const ExpertsConfig& e, bool training) {
  const double T = double(logits.size());
  const size_t E = size_t(e.experts);
  std::vector<int64_t> taken(E, 0);
  int64_t no_ops = 0;
  const double most =
      training && e.capacity_factor > 0 ? std::ceil(e.capacity_factor * double(e.per_token) * T / double(E) - 1e-9) : T;
  const double most_no_ops = training && e.no_op_capacity > 0 ? std::floor(e.no_op_capacity * T + 1e-9) : T;
  Given given;
  for (const std::vector<double>& row : logits) {
    given.emplace_back();
    std::vector<size_t> order(row.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return row[a] > row[b]; });
    if (order[0] >= E && double(no_ops) < most_no_ops) {
      no_ops++;
      given.back().push_back(uint8_t(order[0]));
      continue;
    }
    std::erase_if(order, [&](size_t o) { return o >= E; });
    for (size_t i = 0; i < size_t(e.per_token); i++)
      if (double(taken[order[i]]++) < most) given.back().push_back(uint8_t(order[i]));
    std::sort(given.back().begin(), given.back().end());
  }
  return given;
}

double softmax(const std::vector<double>& row, size_t o) {
  double sum = 0;
  for (const double l : row) sum += std::exp(l - row[o]);
  return 1 / sum;
}

Given expert_choice(const std::vector<std::vector<double>>& logits, const ExpertsConfig& e, bool training) {
  const auto offset = [&](size_t o) { return e.offset ? 0.4 - 0.3 * double(o) : 0; };
  Given given(logits.size());
  const size_t T = logits.size(), k = std::max<size_t>(1, size_t(e.capacity * double(T) + 1e-9));
  for (size_t o = 0; o < size_t(e.experts); o++) {
    std::vector<size_t> order(T);
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return softmax(logits[a], o) > softmax(logits[b], o); });
    for (size_t i = 0; i < T; i++)
      if (training ? i < k : logits[order[i]][o] + offset(o) > 0) given[order[i]].push_back(uint8_t(o));
  }
  return given;
}

std::vector<int32_t> text() { return Tokenizer::bytes().encode("Forty tokens are two windows and a part."); }

struct Case {
  ExpertVariant variant;
  SelectBy by;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.variant.name; }
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ExpertVariant& v : kExpertVariants) {
    all.push_back({v, SelectBy::kTopK});
    if (config_of(v).has_causal_rule()) all.push_back({v, SelectBy::kCausal});
  }
  return all;
}

class TraceExperts : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(Every, TraceExperts, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.variant.name) + (info.param.by == SelectBy::kTopK ? "TopK" : "Causal");
});

TEST_P(TraceExperts, AreThoseOfTheRoutersWeights) {
  const ModelConfig config = config_of(GetParam().variant);
  const auto model = ready(config);
  const std::vector<int32_t> tokens = text();
  const Selection how{.by = GetParam().by};
  const Trace trace = trace_text(*model, tokens, how);
  ASSERT_EQ(trace.experts.size(), 3u);
  const std::vector<std::vector<int32_t>> documents{tokens};
  Loader loader(stream_of(documents, tokens.back()), {.T = kWindow, .B = 1});
  int64_t told = 0, left_out = 0;
  for (int64_t block = 0; block < 3; block++) {
    const TracedExperts& e = trace.experts[size_t(block)];
    const auto cut = beginning_of(*model, block);
    Activations acts(cut->config(), {.sequences = 1, .T = kWindow}, Purpose::kForward);
    ASSERT_EQ(e.begin.size(), tokens.size() + 1);
    int64_t n = 0;
    for (int64_t w = 0; w < loader.eval_sequences(); w++) {
      const Batch& batch = loader.eval(w, 1);
      forward_blocks(cut->weights.weights(), *cut->products, acts, cut->config(), batch, how);
      const auto logits = logits_of(*cut, acts);
      const bool training = how.by == SelectBy::kTopK;
      const Given expected = config.experts_choose() ? expert_choice(logits, config.experts, training)
                                                     : token_choice(logits, config.experts, training);
      size_t s = 0;
      for (int64_t row = 0; row < batch.rows(); row++, n++) {
        const bool routed = !e.section.routed || trace.layer[0].routed[size_t(n)];
        EXPECT_EQ(e.here[size_t(n)], routed) << n;
        const std::vector<uint8_t> given(e.given(n).begin(), e.given(n).end());
        EXPECT_EQ(given, routed ? expected[s++] : std::vector<uint8_t>{}) << "block " << block << " token " << n;
        told += int64_t(given.size());
        left_out += !routed;
      }
      EXPECT_EQ(s, expected.size());
    }
  }
  EXPECT_GT(told, 0);
  EXPECT_EQ(left_out > 0, GetParam().variant.staged);
}

TEST_P(TraceExperts, AddUpToTheShares) {
  const auto model = ready(config_of(GetParam().variant));
  const std::vector<int32_t> tokens = text();
  const Trace trace = trace_text(*model, tokens, {.by = GetParam().by});
  EXPECT_EQ(trace.counts_mlps(), !GetParam().variant.staged);
  int64_t mlps = 0, assigned = 0, depths = 0, deepest = 0;
  for (const TracedExperts& e : trace.experts) {
    std::vector<int64_t> rows(size_t(e.experts()), 0);
    int64_t no_ops = 0, here = 0;
    for (int64_t n = 0; n < trace.tokens(); n++) {
      for (const uint8_t o : e.given(n)) o < e.experts() ? rows[o]++ : no_ops++;
      mlps += e.mlps(n);
      here += e.here[size_t(n)];
    }
    assigned += e.sum.assigned();
    EXPECT_EQ(rows, e.sum.expert_rows);
    EXPECT_EQ(no_ops, e.sum.no_ops);
    EXPECT_EQ(here, e.sum.rows);
    const bool ruled = model->config().experts_choose() && model->config().experts.causal == Causal::kBce;
    EXPECT_EQ(e.sum.agreement.rows > 0, ruled) << "of the rule, by whichever the text was read";
  }
  EXPECT_EQ(mlps, assigned);
  for (int64_t n = 0; n < trace.tokens(); n++) {
    depths += trace.depth(n);
    deepest = std::max(deepest, trace.depth(n));
  }
  if (trace.counts_mlps()) {
    EXPECT_EQ(depths, mlps);
    EXPECT_EQ(trace.deepest(), deepest);
  } else {
    EXPECT_EQ(trace.deepest(), int64_t(trace.layer.size()));
  }
}

// Two tokens of one block: one had 3 MLPs, the other 255.
TEST(LegendDepths, AreFewAndBeginWithTheShallowest) {
  Trace trace;
  trace.token = {1, 2};
  TracedExperts e{.section = {}, .here = {1, 1}, .begin = {0, 3, 258}, .output{}};
  for (int i = 0; i < 3; i++) e.output.push_back(uint8_t(i));
  for (int i = 0; i < 255; i++) e.output.push_back(uint8_t(i));
  e.sum.expert_rows.resize(256);
  trace.experts.push_back(e);
  EXPECT_EQ(trace.shallowest(), 3);
  EXPECT_EQ(trace.deepest(), 255);
  const std::vector<int64_t> many = legend_depths(trace);
  EXPECT_LE(many.size(), 17u);
  EXPECT_EQ(many[0], 3);
  EXPECT_EQ(many[1], 19);
  trace.experts.clear();
  trace.layer.resize(3);
  EXPECT_EQ(legend_depths(trace), (std::vector<int64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace isobath
