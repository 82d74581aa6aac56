// Training runs small enough for a test: a text made here, a model of a few thousand weights.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "checkpoint/checkpoints.h"
#include "support/temp_dir.h"
#include "train/trainer.h"

namespace isobath::testing {

// Temporary folders in memory where the system has such a place: checkpoints are flushed to disk.
inline const bool kInMemory = fs::is_directory("/dev/shm") && ::setenv("TMPDIR", "/dev/shm", 1) == 0;

// Sentences of a few words in which much can be predicted, a pure function of the seed. With `documents` a line
// <|endoftext|> follows some of them.
inline std::string synthetic_text(int sentences, uint64_t seed = 3, bool documents = false) {
  const std::vector<std::string> who{"the pilot", "a sounder", "the chart", "one ship"};
  const std::vector<std::string> what{"marks", "reads", "follows", "leaves"};
  const std::vector<std::string> where{"the deep line", "a low shore", "the old sea bed", "ten fathoms"};
  const Rng rng(seed, Stream::kBench);
  std::string text;
  for (int i = 0; i < sentences; i++) {
    const auto word = [&](const auto& words, uint64_t column) {
      return words[size_t(rng.below(int64_t(words.size()), uint64_t(i), column))];
    };
    text += word(who, 0) + " " + word(what, 1) + " " + word(where, 2) + ".\n";
    if (documents && rng.below(3, uint64_t(i), 3) == 0) text += "<|endoftext|>\n";
  }
  return text;
}

// Four blocks of width 16, blocks 1 and 3 routed at 25%.
inline RunConfig tiny_run(const TempDir& dir, int sentences = 120, bool documents = false) {
  RunConfig c;
  c.model.hidden_size = 16;
  c.model.intermediate_size = 32;
  c.model.num_hidden_layers = 4;
  c.model.routing.topology = Topology::kJoint;
  c.model.routing.capacity = {0.25};
  c.data.path = dir.write("text.txt", synthetic_text(sentences, 3, documents)).string();
  c.data.context = 24;
  c.data.batch = 4;
  c.train.steps = 10;
  c.train.threads = 1;  // so small that a second one costs more than it brings
  c.train.out = (dir / "run").string();
  return c;
}

inline const MachinePeak kPeak{.fma_gflop_s = 100, .read_gb_s = 10, .cpu = "a test's", .threads = 1, .simd = "none"};

inline Corpus corpus_of(const RunConfig& c) { return Corpus::load(c.data.path, Tokenizer::bytes(), c.data.valid_path); }
inline std::unique_ptr<Trainer> trainer_of(const RunConfig& c) {
  return std::make_unique<Trainer>(c, Tokenizer::bytes(), corpus_of(c), kPeak);
}

// What a run did, as somebody who watches it sees it.
struct Watched {
  std::vector<StepRecord> steps;
  std::vector<EvalRecord> evals;
  TrainResult result;
};
// Runs to the end of the budget, or until `stop_after` steps are done. `from` is the checkpoint to go on from.
inline Watched run_and_watch(const RunConfig& c, int64_t stop_after = -1, const fs::path& from = {}) {
  Watched w;
  const auto trainer = trainer_of(c);
  if (!from.empty()) trainer->resume(from);
  Observer observer;
  observer.on_step = [&](const StepRecord& r) { w.steps.push_back(r); };
  observer.on_eval = [&](const EvalRecord& r) { w.evals.push_back(r); };
  observer.stop = [&] { return trainer->steps_done() == stop_after; };
  w.result = trainer->run(observer);
  return w;
}

// The error of f(), which must throw one.
template <class F>
Error error_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error("none");
}
inline void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "looked for: " << part << "\nin: " << text;
}

inline std::vector<float> values_of(const WeightSet& set) {
  std::vector<float> all;
  for (size_t i = 0; i < set.list().size(); i++)
    all.insert(all.end(), set.at(i).data, set.at(i).data + set.at(i).numel());
  return all;
}

}  // namespace isobath::testing
