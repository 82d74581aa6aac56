// Thousands of requests through engines with very little memory, some cancelled, some late, some rolled back: every
// answer equals its run alone, and all pages come back.
#include "generate/soak.h"

#include "generate/tiny_experts.h"

namespace isobath {
namespace {

using namespace testing;

// Of the tiny model.
int64_t page_bytes(Storage kv) { return 2 * 16 * 20 * (kv == Storage::kF32 ? 4 : 2) + 64; }

void expect_pages_add_up(const Engine& engine) {
  int64_t held = 0;
  for (size_t l = 0; l < engine.statistics().layer.size(); l++) held += engine.pool().held_pages(int64_t(l));
  ASSERT_EQ(held + engine.pool().free_pages(), engine.pool().pages());
}

// What a soak ran into.
struct Met {
  int64_t late = 0, turned_away = 0, gave_way = 0, shared_tokens = 0;
  Met operator+(const Met& other) const {
    return {late + other.late, turned_away + other.turned_away, gave_way + other.gave_way,
            shared_tokens + other.shared_tokens};
  }
};

// `pages`: 20 hold the longest request, 71 tokens, and no more.
Met soak(const Soak& soak, int64_t requests, const EngineOptions& base, int64_t pages, uint64_t seed) {
  EngineOptions options = base;
  double now = 0;
  options.kv_bytes = pages * page_bytes(options.kv);
  options.clock = [&] { return now; };
  Engine engine(*soak.model, Tokenizer::bytes(), options);
  const Rng rng(seed, Stream::kBench);
  int64_t answered = 0, cancelled = 0, submitted = 0, late = 0, turned_away = 0;
  struct Open {
    int64_t id;
    bool may_roll_back;  // drawn with drafts, what comes then is another text
  };
  std::vector<Open> open;
  for (uint64_t turn = 0; submitted < requests || !engine.idle(); turn++) {
    const int64_t what = rng.below(10, turn);
    const size_t i = size_t(rng.below(int64_t(soak.requests.size()), turn, 1));
    if (what < 4 && submitted < requests) {
      Request request = soak.requests[i];
      if (rng.below(20, turn, 2) == 0) request.seconds = 1 + double(rng.below(30, turn, 3));
      const auto id = engine.submit(request, {.on_finish = [&, i](const Result& r) {
                                      soak.expect_answer(i, r);
                                      late += r.finish == Finish::kDeadline;
                                      answered++;
                                    }});
      const bool drafts = options.speculate > 0 && request.sampling.temperature > 0;
      if (id)
        open.push_back({*id, !drafts}), submitted++;
      else
        turned_away++;
    } else if (what == 4 && !open.empty() && rng.below(3, turn, 4) == 0) {
      cancelled += engine.cancel(open[size_t(rng.below(int64_t(open.size()), turn, 5))].id);
    } else if (what == 5 && !open.empty()) {
      const auto& [id, may_roll_back] = open[size_t(rng.below(int64_t(open.size()), turn, 6))];
      if (const Result* r = engine.find(id); r != nullptr && may_roll_back)
        engine.rollback(id, rng.below(r->drawn() + 1, turn, 7));
    } else {
      engine.step();
      now += 1;
      expect_pages_add_up(engine);
    }
    std::erase_if(open, [&](const Open& o) { return engine.find(o.id) == nullptr; });
    if (turn >= 200u * uint64_t(requests)) {
      ADD_FAILURE() << "the engine does not come to an end";
      break;
    }
  }
  EXPECT_EQ(answered, requests);
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(engine.statistics().finished, requests);
  engine.forget_prefixes();
  EXPECT_EQ(engine.pool().free_pages(), engine.pool().pages());
  const Statistics& s = engine.statistics();
  return {late, turned_away, s.gave_way, s.shared_tokens};
}

// Every trouble that there is: a deadline that passes, a full queue, too little memory; and a prompt that is shared.
void expect_all(const Met& met) {
  EXPECT_GT(met.late, 0);
  EXPECT_GT(met.turned_away, 0);
  EXPECT_GT(met.gave_way, 0);
  EXPECT_GT(met.shared_tokens, 0);
}

TEST(Soak, TenThousandRequestsInLittleMemory) {
  const Soak all(kRules[0], 300);
  const int64_t n = soak_size(10000);
  expect_all(soak(all, n / 4, {.sequences = 6, .max_rows = 24, .queue = 20}, 20, 1) +
             soak(all, n / 4, {.sequences = 3, .max_rows = 5, .queue = 4, .prefixes = 3}, 33, 2) +
             soak(all, n / 4, {.sequences = 16, .max_rows = 64, .queue = 100}, 60, 3) +
             soak(all, n / 4, {.sequences = 8, .max_rows = 512, .prefixes = 0}, 200, 4));
}

TEST(Soak, Drafts) {
  const int64_t n = soak_size(1200);
  const Soak all(kRules[0], 200, {.speculate = 4});
  expect_all(soak(all, n, {.sequences = 6, .max_rows = 24, .queue = 20, .speculate = 4}, 20, 6));
  soak(all, n, {.sequences = 3, .max_rows = 5, .queue = 4, .prefixes = 3, .speculate = 4}, 33, 7);
  soak(all, n, {.sequences = 16, .max_rows = 64, .queue = 100, .speculate = 4}, 60, 8);
  for (const Rule& rule : kRules)
    soak(Soak(rule, 40, {.speculate = 3}), soak_size(300),
         {.sequences = 5, .max_rows = 16, .queue = 10, .speculate = 3}, 25, 9);
}

TEST(Soak, SmallFormats) {
  for (const WeightFormat weights : {WeightFormat::kBf16, WeightFormat::kInt8}) {
    const EngineOptions formats{.weights = weights, .kv = Storage::kBf16};
    EngineOptions options = formats;
    options.sequences = 6, options.max_rows = 24, options.queue = 20;
    soak(Soak(kRules[0], 100, formats), soak_size(1000), options, 20, 10);
  }
}

TEST(Soak, EveryRule) {
  for (const Rule& rule : kRules)
    soak(Soak(rule, 40), soak_size(400), {.sequences = 5, .max_rows = 16, .queue = 10}, 25, 5);
}

TEST(Soak, Experts) {
  for (const ExpertVariant& v : variants_that_generate()) {
    SCOPED_TRACE(v.name);
    soak(Soak(tiny_config(v), 20), soak_size(200), {.sequences = 5, .max_rows = 16, .queue = 10}, 25, 11);
  }
}

}  // namespace
}  // namespace isobath
