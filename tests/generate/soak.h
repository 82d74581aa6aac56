// Random requests for soaks: a few hundred different ones, whose answers alone are known, in any number and order.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "generate/tiny_model.h"

namespace isobath::testing {

// How many requests a soak takes: fewer where sanitizers slow it down, unless ISOBATH_SOAK=full.
inline int64_t soak_size(int64_t full) {
  if (const char* size = std::getenv("ISOBATH_SOAK"); size != nullptr && std::string_view(size) == "full") return full;
#if defined(__SANITIZE_ADDRESS__)
  return full / 20;
#elif defined(__SANITIZE_THREAD__)
  return full / 50;
#else
  return full;
#endif
}

struct Soak {
  std::unique_ptr<Model> model;
  std::vector<Request> requests;
  std::vector<Result> alone;

  // Prompts come from four texts, so that many begin alike.
  // `options`: formats of the engines. With `speculate`, engines that draft as many tokens: some requests none, some
  // fewer.
  explicit Soak(const Rule& rule, int64_t different, const EngineOptions& options = {})
      : Soak(tiny_config(rule), different, options) {}
  explicit Soak(const ModelConfig& config, int64_t different, const EngineOptions& options = {})
      : model(tiny_model(config)) {
    const int64_t speculate = options.speculate;
    const Rng rng(11, Stream::kBench);
    for (int64_t i = 0; i < different; i++) {
      const uint64_t at = uint64_t(i) * 10;
      const std::vector<int32_t> text = random_prompt(60, 100 + uint64_t(rng.below(4, at)));
      Request r{.prompt = {text.begin(), text.begin() + 1 + rng.below(40, at + 1)},
                .max_tokens = 1 + rng.below(30, at + 2),
                .stop_tokens = {int32_t(rng.below(257, at + 3))},
                .sampling = {.temperature = rng.below(2, at + 4) * 0.9, .seed = uint64_t(i)},
                .sequence_id = rng.below(2, at + 5)};
      if (rng.below(4, at + 6) == 0) r.prompt.push_back(int32_t(rng.below(256, at + 7)));
      if (speculate > 0 && rng.below(3, at + 8) > 0) r.speculate = rng.below(speculate + 1, at + 9);
      requests.push_back(r);
    }
    for (const Request& request : requests) {
      Engine engine(*model, Tokenizer::bytes(),
                    {.weights = options.weights, .kv = options.kv, .prefixes = 0, .speculate = speculate});
      alone.push_back(run_all(engine, {request})[0]);
    }
  }

  // Finished answers equal the one alone; of a cancelled one, what is there is its beginning.
  void expect_answer(size_t i, const Result& got) const {
    const Result& want = alone[i];
    if (got.finish != Finish::kCancelled && got.finish != Finish::kDeadline) {
      EXPECT_EQ(got.finish, want.finish) << i;
      EXPECT_EQ(got.tokens, want.tokens) << i;
      EXPECT_EQ(got.text, want.text) << i;
      return;
    }
    ASSERT_LE(got.tokens.size(), want.tokens.size()) << i;
    EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), want.tokens.begin())) << i;
  }
};

}  // namespace isobath::testing
