// The plan of the buffers: routed blocks are smaller by their capacity, forward passes share, bytes are what is
// planned.
#include "model/activations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model/network.h"
#include "support/tiny_model.h"

namespace isobath {
namespace {

using namespace isobath::testing;

const Plan::Entry& entry(const Activations& acts, const std::string& name) {
  for (const Plan::Entry& e : acts.plan().entries())
    if (e.name == name) return e;
  ADD_FAILURE() << "no entry " << name;
  static const Plan::Entry none{};
  return none;
}
bool has_entry(const Activations& acts, const std::string& name) {
  return std::any_of(acts.plan().entries().begin(), acts.plan().entries().end(),
                     [&](const Plan::Entry& e) { return e.name == name; });
}
ModelConfig planned(ModelConfig c, int64_t T) {
  resolve(c, T);
  return c;
}
constexpr BatchLimits kLimits{.sequences = 3, .T = 40};

TEST(Plan, OfRoutedBlocksScalesWithCapacity) {
  const Activations acts(planned(tiny_routed(0.125, 4), 40), kLimits, Purpose::kTrain, Allocate::kNo);
  for (const char* name : {"saved", "rstd1", "qkv", "o", "lse", "z", "rstd2", "uv"}) {
    const Plan::Entry &dense = entry(acts, std::string("section.0.") + name),
                      &routed = entry(acts, std::string("section.1.") + name);
    EXPECT_EQ(dense.shape[0], 120) << name;
    EXPECT_EQ(routed.shape[0], 15) << name;
    EXPECT_EQ(routed.bytes * 8, dense.bytes) << name;
  }
  EXPECT_EQ(entry(acts, "section.1.router.score").shape[0], 120) << "every row is scored";
  EXPECT_EQ(acts.list_sizes(), (std::vector<int64_t>{15, 120}));
}

TEST(Plan, OfDocumentsHoldsOneMoreRowForEach) {
  ModelConfig c = planned(tiny_routed(0.125), 40);
  const BatchLimits limits{.sequences = 2, .T = 40, .max_documents = 7};
  EXPECT_EQ(planned_rows(c, 1, limits, Purpose::kTrain), 2 * 5);
  c.routing.capacity_scope = Scope::kDocument;
  EXPECT_EQ(planned_rows(c, 1, limits, Purpose::kTrain), 2 * 12);
  EXPECT_EQ(planned_rows(c, 1, {.sequences = 2, .T = 40, .max_documents = 40}, Purpose::kTrain), 2 * 40);
  EXPECT_EQ(planned_rows(c, 0, limits, Purpose::kTrain), 80) << "a dense block";
  EXPECT_EQ(planned_rows(c, 1, limits, Purpose::kForward), 80) << "room for any choice";
}

// The most rows that documents can demand fit: all of one row, or one long and many short.
TEST(Plan, OfDocumentsIsEnough) {
  ModelConfig c = tiny_routed(0.3);
  c.routing.capacity_scope = c.routing.attention_scope = Scope::kDocument;
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>(12, 1), std::vector<int64_t>{3, 3, 3, 3}, std::vector<int64_t>{9, 1, 1, 1}}) {
    const std::vector<Sequence> packed{random_sequence(1, lengths, c.vocab_size)};
    TinyModel model(c, limits_for(packed));
    EXPECT_TRUE(std::isfinite(model.step(TinyBatch(packed, model.config))));
    EXPECT_LE(model.router(1).list.rows, planned_rows(model.config, 1, limits_for(packed), Purpose::kTrain));
  }
}

TEST(Plan, OfAForwardPassSharesOneSetOfBuffers) {
  const auto bytes = [](int64_t L, Purpose purpose) {
    return Activations(planned(tiny_config(L), 40), kLimits, purpose, Allocate::kNo).plan().bytes();
  };
  EXPECT_EQ(bytes(2, Purpose::kForward), bytes(20, Purpose::kForward));
  EXPECT_GT(bytes(20, Purpose::kTrain), 4 * bytes(2, Purpose::kTrain));
  const Activations acts(planned(tiny_routed(0.125, 4), 40), kLimits, Purpose::kForward);
  EXPECT_EQ(acts.section[0].qkv.data, acts.section[3].qkv.data);
  EXPECT_NE(acts.section[1].router.score.data, acts.section[3].router.score.data) << "scores outlive the pass";
  EXPECT_FALSE(has_entry(acts, "dx"));
  EXPECT_FALSE(has_entry(acts, "section.0.lse"));
}

TEST(Plan, BytesAreTheArenas) {
  for (const Purpose purpose : {Purpose::kTrain, Purpose::kForward}) {
    const ModelConfig c = planned(tiny_routed(), 40);
    const Activations acts(c, kLimits, purpose);
    const Activations dry(c, kLimits, purpose, Allocate::kNo);
    EXPECT_EQ(acts.plan().bytes(), dry.plan().bytes());
    int64_t last = 0;
    for (const Plan::Entry& e : acts.plan().entries()) last = std::max(last, e.offset + e.bytes);
    EXPECT_EQ(acts.plan().bytes(), last);
    EXPECT_TRUE(dry.x.empty());
    EXPECT_FALSE(acts.x.empty());
  }
}

// No two buffers that live together overlap: of scratch, forward's and backward's do not, nor those of the two halves
// of a block, nor the blocks' and the head's.
bool live_apart(const std::string& a, const std::string& b) {
  const std::set<std::string> head{"scratch.logits", "scratch.chunk_normed", "scratch.chunk_rstd"},
      forward{"scratch.a", "scratch.m"}, backward{"scratch.ddelta", "scratch.dz2"},
      attention{"scratch.qkv", "scratch.o"},
      mlp{"scratch.h",       "scratch.uv", "scratch.rows",  "scratch.sums", "scratch.column", "scratch.chosen_begin",
          "scratch.dweight", "scratch.dp", "scratch.dlogit"};
  const auto of_a_block = [&](const std::string& name) {
    return name == "scratch.normed" || forward.contains(name) || backward.contains(name) || attention.contains(name) ||
           mlp.contains(name);
  };
  return (head.contains(a) && of_a_block(b)) || (forward.contains(a) && backward.contains(b)) ||
         (attention.contains(a) && mlp.contains(b));
}

class PlanOverlap : public ::testing::TestWithParam<ExpertsConfig> {};
INSTANTIATE_TEST_SUITE_P(Plan, PlanOverlap,
                         ::testing::Values(ExpertsConfig{}, ExpertsConfig{.experts = 3},
                                           ExpertsConfig{.experts = 3, .choice = Choice::kExpert}),
                         [](const auto& info) { return std::to_string(info.index); });

TEST_P(PlanOverlap, BuffersOfTrainingDoNotOverlap) {
  ModelConfig config = tiny_routed();
  config.experts = GetParam();
  for (const Storage storage : {Storage::kF32, Storage::kBf16})
    for (const Recompute recompute : {Recompute::kNone, Recompute::kBlocks}) {
      const Activations acts(planned(config, 40), kLimits, Purpose::kTrain, Allocate::kNo,
                             {.recompute = recompute, .storage = storage});
      const auto of_blocks = [&](const std::string& name) {  // what recompute lets the blocks share
        return recompute == Recompute::kBlocks && name.starts_with("section.") && !name.ends_with(".saved") &&
               name.find(".router.") == std::string::npos && name.find(".experts.") == std::string::npos;
      };
      const auto& entries = acts.plan().entries();
      for (size_t i = 0; i < entries.size(); i++)
        for (size_t j = 0; j < i; j++) {
          const Plan::Entry &a = entries[i], &b = entries[j];
          const bool apart = a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes;
          const bool shared = of_blocks(a.name) && of_blocks(b.name) && a.name.substr(0, 10) != b.name.substr(0, 10);
          EXPECT_TRUE(apart || shared || live_apart(a.name, b.name) || live_apart(b.name, a.name))
              << a.name << " and " << b.name;
        }
    }
}

// With recompute a block has its inputs and its router for itself; the rest is there once, for the longest list.
TEST(Plan, OfRecomputeSharesWhatCanBeMadeAgain) {
  const ModelConfig c = planned(tiny_routed(0.125, 4), 40);
  const Activations kept(c, kLimits, Purpose::kTrain),
      again(c, kLimits, Purpose::kTrain, Allocate::kYes, {.recompute = Recompute::kBlocks});
  EXPECT_EQ(again.section[0].qkv.data, again.section[2].qkv.data);
  EXPECT_EQ(again.section[1].uv.rows(), 15);
  const auto own = [](const std::string& name) {
    return name.ends_with(".saved") || name.find(".router.") != std::string::npos;
  };
  int64_t inputs = 0;
  for (int64_t l = 0; l < 4; l++) inputs += again.section_bytes(l);
  for (const Plan::Entry& e : again.plan().entries())
    if (own(e.name)) inputs -= e.bytes;
  EXPECT_EQ(inputs, 0) << "what is shared is no block's";
  EXPECT_LT(again.plan().bytes(), kept.plan().bytes());
}

// What is kept is half, to the byte; what is not is as it was, but for the MLP's stand-in.
TEST(Plan, OfBf16StorageHalvesWhatIsKept) {
  const ModelConfig c = planned(tiny_routed(0.125, 4), 40);
  const Activations f32(c, kLimits, Purpose::kTrain, Allocate::kNo),
      bf16(c, kLimits, Purpose::kTrain, Allocate::kNo, {.storage = Storage::kBf16});
  for (const Plan::Entry& e : f32.plan().entries()) {
    const std::string part = e.name.substr(e.name.rfind('.') + 1);
    const bool kept =
        e.name.starts_with("section.") && std::set<std::string>{"saved", "qkv", "o", "z", "uv", "delta"}.contains(part);
    EXPECT_EQ(entry(bf16, e.name).bytes * (kept ? 2 : 1), e.bytes) << e.name;
  }
  EXPECT_FALSE(has_entry(f32, "scratch.uv"));
  EXPECT_TRUE(has_entry(bf16, "scratch.uv"));
  const Activations forward(c, kLimits, Purpose::kForward, Allocate::kNo, {.storage = Storage::kBf16});
  EXPECT_EQ(entry(forward, "section.0.uv").bytes, 120 * 2 * 28 * 4) << "evaluation is fp32";
}

// A block more is its inputs more.
TEST(Plan, OfRecomputeGrowsByTheInputsOnly) {
  const auto bytes = [](int64_t L) {
    return Activations(planned(tiny_config(L), 40), kLimits, Purpose::kTrain, Allocate::kNo,
                       {.recompute = Recompute::kBlocks})
        .plan()
        .bytes();
  };
  EXPECT_EQ(bytes(9) - bytes(8), 120 * 20 * 4);
}

TEST(HeadChunk, StaysNearFourMegabytes) {
  ModelConfig c = tiny_config();
  c.vocab_size = 32000;
  EXPECT_EQ(head_chunk(c, 100000), 256);
  c.vocab_size = 257;
  EXPECT_EQ(head_chunk(c, 100000), 4080);
  EXPECT_EQ(head_chunk(c, 100), 100);
}

}  // namespace
}  // namespace isobath
