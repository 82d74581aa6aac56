// A real pretrained model (stories260K): text, logits and loss that other programs published or computed in float64.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "generate/load.h"
#include "generate/tiny_model.h"
#include "support/test_data.h"

namespace isobath {
namespace {

using namespace testing;
using Json = nlohmann::json;

Json golden(const fs::path& model) { return Json::parse(read_file(model.parent_path() / "stories260K/golden.json")); }

TEST(Stories, GreedyIdsAndTextAreThePublishedOnes) {
  ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");
  const LoadedModel loaded = load_model(path);
  const Json want = golden(path)["greedy"];
  const std::vector<int32_t> ids = want["ids"];
  Engine engine(*loaded.model, loaded.tokenizer, {});
  const Request request{.prompt = want["prompt_ids"],
                        .max_tokens = int64_t(ids.size()) - 1,
                        .stop = {},
                        .stop_at_eos = true,
                        .sampling = {.temperature = 0}};
  std::string streamed;
  Result result;
  engine.submit(request, {.on_text = [&](std::string_view piece) { streamed += piece; },
                          .on_finish = [&](const Result& r) { result = r; }});
  engine.run();
  EXPECT_EQ(result.tokens, ids);
  EXPECT_EQ(result.text, want["text"].get<std::string>());
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(prompt_tokens(loaded.tokenizer, ""), request.prompt);
}

TEST(Stories, LastLogitsOfThePromptsAreThoseOfFloat64) {
  ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");
  const LoadedModel loaded = load_model(path);
  const Json prompts = golden(path)["prompts"];
  Engine engine(*loaded.model, loaded.tokenizer, {.sequences = int64_t(prompts.size())});
  std::vector<Request> requests;
  for (const Json& p : prompts) {
    requests.push_back({.prompt = prompt_tokens(loaded.tokenizer, p["text"].get<std::string>()), .max_tokens = 1});
    EXPECT_EQ(requests.back().prompt, p["ids"].get<std::vector<int32_t>>());
  }
  const std::vector<Traced> traces = run_traced(engine, requests);
  for (size_t b = 0; b < prompts.size(); b++) {
    const std::vector<double> want = prompts[b]["last_logits_f64"];
    ASSERT_EQ(want.size(), 512u);
    for (size_t i = 0; i < want.size(); i++) ASSERT_NEAR(traces[b].logits[0][i], want[i], 5e-5) << b << ", " << i;
  }
}

// Mean loss of the story's tokens after the first, summed in float64.
double story_loss(const LoadedModel& loaded, Activations& acts, std::vector<int32_t> ids, int64_t& scored) {
  const int64_t T = int64_t(ids.size());
  std::vector<int32_t> target(ids.begin() + 1, ids.end()), position(ids.size()), sequence(ids.size(), 0);
  target.push_back(-1);
  std::iota(position.begin(), position.end(), 0);
  const int32_t begin[] = {0, int32_t(T)};
  const int64_t id = 0;
  const Batch batch{.token = {ids.data(), {T}},
                    .target = {target.data(), {T}},
                    .position = {position.data(), {T}},
                    .capacity_begin = {begin, {2}},
                    .segment_begin = {begin, {2}},
                    .sequence = {sequence.data(), {T}},
                    .sequence_id = {&id, {1}}};
  const Model& m = *loaded.model;
  forward_blocks(m.weights.weights(), *m.products, acts, m.config(), batch, {.by = SelectBy::kCausal});
  scored += T - 1;
  return forward_loss(m.weights.weights(), *m.products, acts, m.config(), batch);
}

TEST(Stories, LossOfFiftyStoriesIsThatOfFloat64) {
  ISOBATH_NEEDS_DATA(path, "models/stories260K-hf");
  const LoadedModel loaded = load_model(path);
  loaded.model->prepare(512);
  Activations acts(loaded.model->config(), {.sequences = 1, .T = 512}, Purpose::kForward);
  const Json want = golden(path)["loss"];
  std::ifstream stories(path.parent_path().parent_path() / want["file"].get<std::string>());
  double sum = 0;
  int64_t scored = 0;
  for (int64_t i = 0; i < want["stories"].get<int64_t>(); i++) {
    std::string line;
    ASSERT_TRUE(std::getline(stories, line));
    std::vector<int32_t> ids = prompt_tokens(loaded.tokenizer, Json::parse(line)["text"].get<std::string>());
    ids.resize(std::min<size_t>(ids.size(), 512));
    int64_t targets = 0;
    const double loss = story_loss(loaded, acts, ids, targets);
    if (i < 5) {
      EXPECT_NEAR(loss / double(targets), want["first_5_story_mean_nll"][size_t(i)].get<double>(), 2e-5);
    }
    sum += loss;
    scored += targets;
  }
  EXPECT_EQ(scored, want["tokens"].get<int64_t>());
  EXPECT_NEAR(sum / double(scored), want["mean_nll"].get<double>(), 1e-5);
}

}  // namespace
}  // namespace isobath
