// Invariant 13 for the program itself: killed at any moment it loses at most the steps since the last checkpoint; asked
// to stop it saves; and what goes on has the bits of what never stopped.
#include <gtest/gtest.h>

#include <random>

#include "cli_support.h"

namespace isobath {
namespace {

using namespace testing;

constexpr int64_t kSteps = 120;

struct Bits {
  std::string model, optimizer;
  bool operator==(const Bits&) const = default;
};
Bits bits_of(const fs::path& out) {
  return {read_file(out / "latest/model.safetensors"), read_file(out / "latest/optimizer.safetensors")};
}

class Interrupt : public ::testing::Test {
 protected:
  Arguments start(const std::string& save_every) const {
    return work_.train({"--steps", std::to_string(kSteps), "--save-every", save_every, "--causal", "predictor"});
  }
  Bits undisturbed() const {
    const std::string out = (work_.dir / "undisturbed").string();
    Arguments arguments = start("0");
    arguments[3] = out;
    output_of(arguments);
    return bits_of(out);
  }
  int64_t saved_step() const {
    const auto latest = latest_checkpoint(work_.out);
    return latest ? latest->step : -1;
  }
  // Of what is written so far.
  int64_t steps_told() const {
    const fs::path path = fs::path(work_.out) / "metrics.jsonl";
    return fs::exists(path) ? int64_t(lines_of(read_file(path)).size()) : 0;
  }
  void expect_metrics_complete() const {
    int64_t step = 0, ends = 0;
    for (const nlohmann::json& record : metrics_of(work_.out)) {
      if (record["event"] == "step") step += record["step"] == step + 1;
      if (record["event"] == "end") ends += record["status"] == "done" ? 1 : 2;
    }
    EXPECT_EQ(step, kSteps);
    EXPECT_EQ(ends, 1);
  }
  const Workplace work_;
};

TEST_F(Interrupt, kill_at_twenty_moments_and_go_on) {
  const Bits want = undisturbed();
  std::mt19937 random(11);
  int64_t saved = -1;
  for (int kills = 0; kills < 20;) {
    const int64_t before = saved;
    Program program(before < 0 ? start("2") : work_.resume());
    if (kills % 4 == 0) {  // wherever it is: loading, planning
      ::usleep(random() % 100'000);
    } else {
      const int64_t until = std::max<int64_t>(0, before) + int64_t(random() % 5);
      while (program.running() && saved_step() < until) ::usleep(500);
      ::usleep(random() % 4000);
    }
    program.signal(SIGKILL);
    const Ended ended = program.wait();
    saved = saved_step();
    ASSERT_GE(saved, before) << "a checkpoint was lost";
    if (ended.signal == SIGKILL) {
      kills++;
      continue;
    }
    ASSERT_EQ(ended.code, 0) << ended.error;  // it was done before: compare, and begin again
    ASSERT_EQ(bits_of(work_.out), want);
    fs::remove_all(work_.out);
    saved = -1;
  }
  output_of(saved < 0 ? start("2") : work_.resume());
  EXPECT_EQ(bits_of(work_.out), want);
  expect_metrics_complete();
}

TEST_F(Interrupt, sigint_and_sigterm_save_and_exit_0) {
  const Bits want = undisturbed();
  for (const int signal : {SIGINT, SIGTERM})
    for (int attempt = 0;; attempt++) {
      ASSERT_LT(attempt, 10) << "it is always done before the signal arrives";
      fs::remove_all(work_.out);
      Program program(start("0"));
      while (program.running() && steps_told() < 3) ::usleep(500);
      program.signal(signal);
      const Ended ended = program.wait();
      ASSERT_EQ(ended.code, 0) << ended.error;
      if (saved_step() == kSteps) continue;

      expect_in(ended.out, "interrupted at step " + std::to_string(saved_step()) + " and saved");
      const auto state = nlohmann::json::parse(read_file(fs::path(work_.out) / "latest/state.json"));
      EXPECT_EQ(state["interrupted"], true);
      const nlohmann::json end = metrics_of(work_.out).back();
      EXPECT_EQ(end["status"], "interrupted");
      EXPECT_EQ(end["step"], saved_step());
      EXPECT_EQ(int64_t(metrics_of(work_.out).size()), saved_step() + 1);

      output_of(work_.resume());
      EXPECT_EQ(bits_of(work_.out), want);
      expect_metrics_complete();
      break;
    }
}

}  // namespace
}  // namespace isobath
