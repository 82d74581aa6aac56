// Invariant 13: a run that stops and goes on takes the steps of one that never stopped, to the bit. And metrics.jsonl
// tells of each step once, whatever happened on the way.
#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>

#include "resume_cases.h"
#include "support/thread_count.h"
#include "train_support.h"

namespace isobath {
namespace {

using namespace testing;
using Json = nlohmann::json;

void expect_same(const std::vector<LayerRouting>& a, const std::vector<LayerRouting>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) {
    EXPECT_EQ(a[i].routed, b[i].routed);
    EXPECT_EQ(a[i].rows, b[i].rows);
    EXPECT_EQ(a[i].dropped, b[i].dropped);
    EXPECT_EQ(a[i].agreement.both, b[i].agreement.both);
  }
}

void expect_same(const std::vector<LayerExperts>& a, const std::vector<LayerExperts>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); i++) {
    EXPECT_EQ(a[i].expert_rows, b[i].expert_rows);
    EXPECT_EQ(a[i].rows, b[i].rows);
    EXPECT_EQ(a[i].dropped, b[i].dropped);
    EXPECT_EQ(a[i].no_ops, b[i].no_ops);
    EXPECT_EQ(a[i].agreement.both, b[i].agreement.both);
  }
}

// All that is not a time.
void expect_same(const StepRecord& a, const StepRecord& b) {
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.loss, b.loss) << "step " << a.step;
  EXPECT_EQ(a.auxiliary, b.auxiliary);
  EXPECT_EQ(a.z_loss, b.z_loss);
  EXPECT_EQ(a.expert_loss, b.expert_loss);
  EXPECT_EQ(a.norm.model, b.norm.model);
  EXPECT_EQ(a.norm.predictor, b.norm.predictor);
  EXPECT_EQ(a.learning_rate, b.learning_rate);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.flops, b.flops);
  expect_same(a.layer, b.layer);
  expect_same(a.experts, b.experts);
}

void expect_same(const Evaluation& a, const Evaluation& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.entropy, b.entropy);
  EXPECT_EQ(a.targets, b.targets);
  expect_same(a.layer, b.layer);
  expect_same(a.experts, b.experts);
}

class Resume : public ::testing::TestWithParam<ResumeCase> {};

TEST_P(Resume, ten_steps_are_six_and_four) {
  const TempDir dir;
  RunConfig c = tiny_run(dir, 120, true);
  GetParam().change(c);

  RunConfig whole_config = c;  // looked at and saved at other times, on other threads
  whole_config.train.out = (dir / "whole").string();
  whole_config.train.eval_every = 4;
  whole_config.train.eval_windows = 2;
  whole_config.train.save_every = 3;
  whole_config.train.threads = 1;
  whole_config.train.memory.recompute = Recompute::kBlocks;  // another way to the same bits
  whole_config.train.memory.packing = Packing::kProduct;
  const ThreadCount restored(2);
  const Watched whole = run_and_watch(whole_config);
  c.train.threads = 2;
  const Watched first = run_and_watch(c, 6);
  ASSERT_TRUE(first.result.interrupted);
  ASSERT_FALSE(first.result.final_eval);
  c.train.threads = 1;
  const Watched second = run_and_watch(c, -1, latest_checkpoint(c.train.out)->folder);
  ASSERT_FALSE(second.result.interrupted);

  ASSERT_EQ(whole.steps.size(), 10u);
  ASSERT_EQ(first.steps.size(), 6u);
  ASSERT_EQ(second.steps.size(), 4u);
  for (size_t i = 0; i < 10; i++) expect_same(whole.steps[i], i < 6 ? first.steps[i] : second.steps[i - 6]);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "config.json"})
    EXPECT_EQ(read_file(whole.result.checkpoint / file), read_file(second.result.checkpoint / file)) << file;
  expect_same(whole.result.final_eval->top_k, second.result.final_eval->top_k);
  ASSERT_EQ(whole.result.final_eval->causal.has_value(), second.result.final_eval->causal.has_value());
  if (whole.result.final_eval->causal) expect_same(*whole.result.final_eval->causal, *second.result.final_eval->causal);
}

TEST_P(Resume, before_the_first_step_and_after_the_last) {
  const TempDir dir;
  RunConfig c = tiny_run(dir, 120, true);
  GetParam().change(c);
  const Watched none = run_and_watch(c, 0);
  ASSERT_TRUE(none.result.interrupted);
  ASSERT_EQ(none.steps.size(), 0u);
  const Watched all = run_and_watch(c, -1, none.result.checkpoint);
  ASSERT_EQ(all.steps.size(), 10u);
  const auto bits_of = [](const Watched& w) {
    return read_file(w.result.checkpoint / "model.safetensors") +
           read_file(w.result.checkpoint / "optimizer.safetensors");
  };
  const std::string bits = bits_of(all);
  const Watched again = run_and_watch(c, -1, all.result.checkpoint);
  EXPECT_EQ(again.steps.size(), 0u);
  EXPECT_EQ(bits_of(again), bits);
  expect_same(all.result.final_eval->top_k, again.result.final_eval->top_k);
}

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::ValuesIn(kCases), [](const auto& info) { return info.param.name; });

// ---- metrics.jsonl

// The lines, each of which must be one JSON object, without what depends on the clock.
std::vector<Json> metrics_of(const RunConfig& c) {
  std::vector<Json> records;
  std::istringstream lines(read_file(fs::path(c.train.out) / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    Json json = Json::parse(line, nullptr, false);
    EXPECT_TRUE(json.is_object()) << line;
    for (const char* clock : {"step_ms", "tokens_per_s", "peak_share"}) json.erase(clock);
    records.push_back(json);
  }
  return records;
}

struct Killed : std::exception {};

// A run that ends as if by kill -9 when `when` says so: nothing after that moment is written. The line that was being
// written is left cut short.
void run_until_killed(const RunConfig& c, const fs::path& from, const Observer& when) {
  const auto trainer = trainer_of(c);
  if (!from.empty()) trainer->resume(from);
  EXPECT_THROW(trainer->run(when), Killed);
  std::ofstream(fs::path(c.train.out) / "metrics.jsonl", std::ios::app) << R"({"event":"step","st)";
}

class MetricsAfter : public ::testing::Test {
 protected:
  MetricsAfter() : config_(tiny_run(dir_)) {
    config_.train.eval_every = 2;
    config_.train.save_every = 3;
    RunConfig whole = config_;
    whole.train.out = (dir_ / "whole").string();
    run_and_watch(whole);
    want_ = metrics_of(whole);
  }
  void finish_and_compare() {
    run_and_watch(config_, -1, latest_checkpoint(config_.train.out)->folder);
    const std::vector<Json> got = metrics_of(config_);
    ASSERT_EQ(got.size(), want_.size());
    for (size_t i = 0; i < got.size(); i++) EXPECT_EQ(got[i], want_[i]);
  }
  const TempDir dir_;
  RunConfig config_;
  std::vector<Json> want_;
};

TEST_F(MetricsAfter, nothing_happened) {
  ASSERT_EQ(want_.size(), 10u + 5 + 1);
  int64_t step = 0, evals = 0;
  for (const Json& record : want_) {
    if (record["event"] == "step") step += record["step"] == step + 1;
    if (record["event"] == "eval") evals += record["step"] == 2 * (evals + 1);
  }
  EXPECT_EQ(step, 10);
  EXPECT_EQ(evals, 5);
  EXPECT_EQ(want_.back(), (Json{{"event", "end"}, {"step", 10}, {"status", "done"}}));
}

TEST_F(MetricsAfter, a_kill_in_a_step) {
  run_until_killed(config_, {}, {.on_step = [](const StepRecord& r) {
                     if (r.step == 5) throw Killed();
                   }});
  finish_and_compare();
}

TEST_F(MetricsAfter, a_kill_right_after_saving) {
  run_until_killed(config_, {}, {.on_save = [](const fs::path& f) {
                     if (f.filename() == "step-00000006") throw Killed();
                   }});
  finish_and_compare();
}

TEST_F(MetricsAfter, a_kill_after_an_evaluation_that_will_be_made_again) {
  run_until_killed(config_, {}, {.on_eval = [](const EvalRecord& r) {
                     if (r.step == 6) throw Killed();
                   }});
  finish_and_compare();
}

TEST_F(MetricsAfter, a_kill_after_the_last_evaluation) {
  run_until_killed(config_, {}, {.on_eval = [](const EvalRecord& r) {
                     if (r.step == 10) throw Killed();
                   }});
  finish_and_compare();
}

TEST_F(MetricsAfter, an_interruption_in_an_evaluation) {
  for (const int64_t step : {4, 10}) {  // during the run, and at its end
    const auto trainer = trainer_of(config_);
    if (const auto saved = latest_checkpoint(config_.train.out)) trainer->resume(saved->folder);
    bool stop = false;
    Observer observer;
    observer.on_eval_progress = [&](int64_t, int64_t) { stop = trainer->steps_done() == step; };
    observer.stop = [&] { return stop; };
    const TrainResult result = trainer->run(observer);
    EXPECT_TRUE(result.interrupted);
    EXPECT_EQ(trainer->steps_done(), step);
  }
  finish_and_compare();
}

TEST_F(MetricsAfter, an_interruption_then_a_kill) {
  run_and_watch(config_, 4);
  const Json end = metrics_of(config_).back();
  EXPECT_EQ(end, (Json{{"event", "end"}, {"step", 4}, {"status", "interrupted"}}));
  EXPECT_TRUE(Json::parse(read_file(fs::path(config_.train.out) / "latest/state.json"))["interrupted"]);
  run_until_killed(config_, latest_checkpoint(config_.train.out)->folder, {.on_step = [](const StepRecord& r) {
                     if (r.step == 8) throw Killed();
                   }});
  finish_and_compare();
  EXPECT_FALSE(Json::parse(read_file(fs::path(config_.train.out) / "latest/state.json"))["interrupted"]);
}

// ---- what is refused

TEST(ResumeRefuses, other_options_by_name_but_not_where_things_lie) {
  const TempDir dir;
  const RunConfig c = tiny_run(dir);
  const fs::path checkpoint = run_and_watch(c, 3).result.checkpoint;
  const auto wrong = [&](const char* key, const std::function<void(RunConfig&)>& change) {
    RunConfig other = c;
    change(other);
    const auto trainer = trainer_of(other);
    const Error error = error_of([&] { trainer->resume(checkpoint); });
    EXPECT_EQ(error.fault(), Fault::kInput);
    expect_in(error.what(), key);
    EXPECT_EQ(trainer->steps_done(), 0);
  };
  wrong("model.hidden_size = 16, not 32", [](auto& o) { o.model.hidden_size = 32; });
  wrong("routing.gate = \"raw\", not \"tanh\"", [](auto& o) { o.model.routing.gate = Gate::kTanh; });
  wrong("data.batch = 4, not 2", [](auto& o) { o.data.batch = 2; });
  wrong("model.max_position_embeddings = 24, not 12", [](auto& o) { o.data.context = 12; });
  wrong("train.seed = 1, not 2", [](auto& o) { o.train.seed = 2; });
  wrong("train.storage = \"f32\", not \"bf16\"", [](auto& o) { o.train.memory.storage = Storage::kBf16; });
  wrong("train.learning_rate", [](auto& o) { o.train.learning_rate = 1e-5; });
  wrong("was trained on other text", [&](auto& o) { o.data.path = dir.write("b.txt", synthetic_text(121)).string(); });

  RunConfig moved = c;
  moved.data.path = dir.write("copy.txt", synthetic_text(120)).string();
  moved.train.keep = 1;
  moved.train.eval_every = 1;
  moved.train.save_every = 1;
  moved.train.memory.recompute = Recompute::kBlocks;
  moved.train.memory.packing = Packing::kProduct;
  const auto trainer = trainer_of(moved);
  trainer->resume(checkpoint);
  EXPECT_EQ(trainer->steps_done(), 3);
}

TEST(ResumeRefuses, a_budget_below_what_was_done) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  const fs::path checkpoint = run_and_watch(c, 3).result.checkpoint;
  c.train.steps = 2;
  const auto trainer = trainer_of(c);
  expect_in(error_of([&] { trainer->resume(checkpoint); }).what(), "has done 3 steps, more than its budget of 2");
}

TEST(Resume, further_than_the_first_budget) {
  const TempDir dir;
  RunConfig c = tiny_run(dir);
  const Watched first = run_and_watch(c);
  EXPECT_FALSE(first.result.interrupted);
  c.train.steps = 13;
  const Watched second = run_and_watch(c, -1, first.result.checkpoint);
  ASSERT_EQ(second.steps.size(), 3u);
  EXPECT_EQ(second.steps.back().step, 13);
  EXPECT_EQ(second.steps.back().tokens, 13 * 4 * 24);
  EXPECT_GT(second.steps[0].learning_rate, first.steps.back().learning_rate);  // of the longer cosine
}

TEST(ResumeRefuses, damaged_states) {
  const TempDir dir;
  const RunConfig c = tiny_run(dir);
  const fs::path checkpoint = run_and_watch(c, 3).result.checkpoint, path = checkpoint / "state.json";
  const Json good = Json::parse(read_file(path));
  const auto wrong = [&](const std::string& text) {
    replace_file(path, text);
    const auto trainer = trainer_of(c);
    const Error error = error_of([&] { trainer->resume(checkpoint); });
    EXPECT_EQ(error.fault(), Fault::kInput);
    expect_in(error.what(), "state.json");
    EXPECT_EQ(trainer->steps_done(), 0);
  };
  wrong("");
  wrong("[]");
  wrong(good.dump().substr(0, 100));
  for (const char* key : {"version", "step", "sequences", "tokens", "flops", "corpus", "options"}) {
    Json bad = good;
    bad.erase(key);
    wrong(bad.dump());
    bad[key] = "x";
    wrong(bad.dump());
    bad[key] = -1;
    wrong(bad.dump());
  }
  Json late = good;
  late["step"] = 11;
  wrong(late.dump());
}

TEST(ResumeRefuses, a_folder_in_which_another_process_trains) {
  const TempDir dir;
  const RunConfig c = tiny_run(dir);
  std::string message;
  const auto trainer = trainer_of(c), other = trainer_of(c);
  Observer observer;
  observer.on_step = [&](const StepRecord& r) {
    if (r.step == 2) message = error_of([&] { other->run({}); }).what();
  };
  trainer->run(observer);
  expect_in(message, c.train.out + ": another process is at work in this folder");
  EXPECT_EQ(latest_checkpoint(c.train.out)->step, 10);
}

TEST(ResumeRefuses, a_folder_with_another_run) {
  const TempDir dir;
  RunConfig c = tiny_run(dir), other = c;
  other.train.out = (dir / "other").string();
  other.train.seed = 9;
  run_and_watch(other, 2);
  const fs::path checkpoint = run_and_watch(c, 3).result.checkpoint;
  c.train.out = other.train.out;
  const auto expect_refused = [&](const fs::path& from) {
    const Error error = error_of([&] { run_and_watch(c, -1, from); });
    EXPECT_EQ(error.fault(), Fault::kInput);
    expect_in(error.what(), c.train.out + " holds the checkpoints of another run");
  };
  expect_refused({});
  expect_refused(checkpoint);
  EXPECT_EQ(latest_checkpoint(other.train.out)->step, 2);
  c.train.out = (dir / "third").string();  // a copy of the run goes on elsewhere
  EXPECT_EQ(run_and_watch(c, -1, checkpoint).steps.size(), 7u);
  EXPECT_EQ(latest_checkpoint(dir / "run")->step, 3);
}

}  // namespace
}  // namespace isobath
