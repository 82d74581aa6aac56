// What holds of caches whatever chooses the rows, a rule of routed blocks or experts (invariants 8 and 9).
#pragma once

#include <cmath>
#include <limits>

#include "generate/tiny_model.h"

namespace isobath::testing {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<Request> ragged_requests(int64_t B, int64_t max_tokens = 12) {
  std::vector<Request> requests;
  const int64_t lengths[] = {11, 1, 26, 3};
  for (int64_t b = 0; b < B; b++)
    requests.push_back({.prompt = random_prompt(lengths[b % 4], uint64_t(b + 1)),
                        .max_tokens = max_tokens + b,
                        .stop = {},
                        .stop_at_eos = false,
                        .sampling = {.temperature = 1, .seed = uint64_t(b + 10)},
                        .sequence_id = 3 * b});
  return requests;
}

// `options`: formats of the engines.
inline void expect_rollback_equals_fresh_generation(const ModelConfig& config, EngineOptions options = {}) {
  options.sequences = 2;
  const auto model = tiny_model(config);
  const auto requests = ragged_requests(2, 14);
  Engine fresh(*model, Tokenizer::bytes(), options);
  const std::vector<Traced> want = run_traced(fresh, requests);
  for (const int64_t dropped : {1, 3, 13}) {
    Engine engine(*model, Tokenizer::bytes(), options);
    Traced got[2];
    const int64_t id = submit_traced(engine, requests[0], got[0]);
    submit_traced(engine, requests[1], got[1]);
    while (engine.find(id)->drawn() < 13) engine.step();
    engine.rollback(id, dropped);
    EXPECT_EQ(engine.find(id)->drawn(), 13 - dropped);
    EXPECT_TRUE(want[0].result.text.starts_with(engine.find(id)->text));
    got[0].logits.resize(size_t(13 - dropped));  // what comes must replace these
    engine.run();
    for (size_t b = 0; b < 2; b++) expect_same_answer(got[b], want[b], std::to_string(dropped) + " dropped");
  }
}

inline void expect_batch_equals_each_alone(const ModelConfig& config, EngineOptions options = {}) {
  const auto model = tiny_model(config);
  const auto requests = ragged_requests(4);
  Engine alone(*model, Tokenizer::bytes(), options);
  options.sequences = 4;
  options.max_rows = 7;
  Engine together(*model, Tokenizer::bytes(), options);
  const std::vector<Traced> batch = run_traced(together, requests);
  for (size_t b = 0; b < requests.size(); b++)
    expect_same_answer(batch[b], run_traced(alone, {&requests[b], 1})[0], "sequence " + std::to_string(b));
}

inline void expect_requests_after_others_equal_those_to_a_fresh_engine(const ModelConfig& config) {
  const auto model = tiny_model(config);
  const auto requests = ragged_requests(4);
  Engine used(*model, Tokenizer::bytes(), {.sequences = 2}), fresh(*model, Tokenizer::bytes(), {.sequences = 2});
  run_traced(used, {&requests[2], 2});
  const std::vector<Traced> second = run_traced(used, {&requests[0], 2});
  const std::vector<Traced> first = run_traced(fresh, {&requests[0], 2});
  for (size_t b = 0; b < 2; b++) expect_same_answer(second[b], first[b], "sequence " + std::to_string(b));
}

// A request begins with nothing, whoever had its place before; at the end a layer's cache has as many entries as rows
// went through it, or all where it keeps all keys.
inline void expect_entries_are_the_rows_that_went_through(const ModelConfig& config) {
  const auto model = tiny_model(config);
  Engine engine(*model, Tokenizer::bytes(), {.prefixes = 0});
  for (const Request& request : ragged_requests(4)) {
    engine.restart_statistics();
    const size_t layers = size_t(config.sections());
    int64_t id = -1, drawn = 0;
    std::vector<size_t> entries(layers);
    id = *engine.submit(request, {.on_token =
                                      [&](const Result&, CF32) {
                                        for (size_t l = 0; l < layers && drawn == 0; l++)
                                          for (const int32_t position : engine.cached_positions(id, int64_t(l)))
                                            EXPECT_LT(position, int64_t(request.prompt.size())) << "section " << l;
                                        drawn++;
                                      },
                                  .on_finish =
                                      [&](const Result&) {
                                        for (size_t l = 0; l < layers; l++)
                                          entries[l] = engine.cached_positions(id, int64_t(l)).size();
                                      }});
    engine.run();
    const Statistics& s = engine.statistics();
    EXPECT_EQ(s.rows(), int64_t(request.prompt.size()) + drawn - 1);
    for (size_t l = 0; l < layers; l++) {
      const Section section = config.section(int64_t(l));
      const int64_t keys = !section.attention() ? 0 : config.keeps_all_keys(section) ? s.rows() : s.layer[l].rows;
      EXPECT_EQ(int64_t(entries[l]), keys) << "section " << l;
      EXPECT_EQ(s.layer[l].kv_used_bytes, keys * engine.kv_row_bytes()) << "section " << l;
    }
  }
}

inline void expect_depth_of_plus_infinity_runs_every_block(const ModelConfig& config) {
  const auto model = tiny_model(config);
  const auto requests = ragged_requests(2);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .depth = kInfinity});
  const std::vector<Traced> traces = run_traced(engine, requests);
  for (size_t b = 0; b < 2; b++) expect_equals_uncached(*model, traces[b], kInfinity, requests[b].sequence_id);
  for (size_t l = 0; l < size_t(config.sections()); l++) {
    EXPECT_EQ(engine.statistics().share_run(l), 1);
    EXPECT_EQ(engine.statistics().layer[l].kv_used_bytes, engine.statistics().layer[l].kv_dense_bytes);
  }
}

inline void expect_depth_of_minus_infinity_runs_no_routed_block_and_stays_finite(const ModelConfig& config) {
  const auto model = tiny_model(config);
  const auto requests = ragged_requests(2);
  Engine engine(*model, Tokenizer::bytes(), {.sequences = 2, .depth = -kInfinity});
  for (size_t b = 0; const Traced& trace : run_traced(engine, requests)) {
    expect_equals_uncached(*model, trace, -kInfinity, requests[b++].sequence_id);
    for (const auto& logits : trace.logits)
      for (const float v : logits) ASSERT_TRUE(std::isfinite(v));
  }
  for (size_t l = 0; l < size_t(config.sections()); l++) {
    if (!config.section(int64_t(l)).routed) continue;
    EXPECT_EQ(engine.statistics().share_run(l), 0);
    const bool all_keys = config.keeps_all_keys(config.section(int64_t(l)));
    EXPECT_EQ(engine.statistics().layer[l].kv_held_bytes == 0, !all_keys);
  }
  EXPECT_EQ(engine.statistics().share_run(0), 1);
}

}  // namespace isobath::testing
