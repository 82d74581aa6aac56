// Runs whose files change, vanish or were damaged: what is passed over is told, and nothing else is touched.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>

#include "checkpoint/safetensors.h"
#include "wrong_input.h"

namespace isobath {
namespace {

using namespace testing;

TEST_F(WrongModel, a_damaged_latest_checkpoint_is_told) {
  fs::remove(run_ / "step-00000004/complete");
  const std::string said = "warning: " + run_.string() + ": step-00000004, which latest names, is not whole";
  for (const Arguments& arguments :
       {Arguments{"generate", run_.string(), "--prompt", "the", "--max-tokens", "2"},
        Arguments{"eval", run_.string() + "/", "--path", trained_->text},
        Arguments{"inspect", run_.string(), "--text", "a"}, resume({"--out", (dir_ / "new").string()})}) {
    SCOPED_TRACE(arguments[0]);
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 0) << ended.error;
    expect_in(ended.error, said);
    expect_in(ended.error, "step-00000002 is used instead");
  }
  fs::remove_all(run_ / "step-00000004");
  expect_in(run({"generate", run_.string(), "--prompt", "the", "--max-tokens", "2"}).error,
            "step-00000004, which latest names, is missing; step-00000002 is used instead");
  fs::remove(run_ / "step-00000002/complete");
  wrong({"generate", run_.string(), "--prompt", "the"}, {"step-00000004, which latest names, is missing"});
}

TEST_F(WrongModel, a_link_that_cannot_be_moved) {
  const fs::path out = dir_ / "blocked";
  fs::create_directories(out / "latest/in the way");
  Arguments arguments = trained_->train();
  arguments[3] = out.string();
  const Ended ended = run(arguments);
  expect_failure(ended, 1, {"latest", "the last good checkpoint is " + (out / "step-00000004").string()});
  EXPECT_EQ(ended.error.find("no checkpoint"), std::string::npos) << ended.error;
}

TEST_F(WrongModel, a_shard_cut_short_while_it_is_read) {
  output_of({"tokenize", "--path", trained_->text, "--out", (dir_ / "text.tokens").string()});
  const fs::path shard = dir_ / "text.train.tokens", out = dir_ / "cut";
  const std::string bytes = read_file(shard);
  Arguments arguments = trained_->train({"--path", shard.string(), "--steps", "1000000", "--save-every", "5"});
  arguments[3] = out.string();
  Program program(arguments);
  while (program.running() && !latest_checkpoint(out)) ::usleep(500);
  fs::resize_file(shard, 0);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.signal, 0);
  expect_failure(ended, 1, {"mapped file", "cut short"});
  fs::remove(shard);
  replace_file(shard, bytes);
  const int64_t step = latest_checkpoint(out)->step;
  output_of({"train", "--resume", out.string(), "--steps", std::to_string(step + 3), "--peak", "100", "--quiet"});
  EXPECT_EQ(latest_checkpoint(out)->step, step + 3);
}

TEST_F(WrongModel, a_run_folder_moved_while_it_trains) {
  const fs::path out = dir_ / "moving", moved = dir_ / "moved";
  Arguments arguments = trained_->train({"--steps", "1000000", "--save-every", "50"});
  arguments[3] = out.string();
  Program program(arguments);
  // Until the second one is whole: the first has then been written to its end, link and all.
  std::error_code none;
  while (program.running() && fs::read_symlink(out / "latest", none).filename() <= "step-00000050") ::usleep(500);
  fs::rename(out, moved);
  const Ended ended = program.wait();
  expect_failure(ended, 1, {"moving: the folder was moved or removed", "the last checkpoint was"});
  EXPECT_FALSE(fs::exists(out));
  EXPECT_TRUE(latest_checkpoint(moved));
}

TEST_F(WrongModel, a_copy_of_a_checkpoint_goes_on_elsewhere_only) {
  const fs::path elsewhere = dir_ / "elsewhere", copy = elsewhere / "copy";
  fs::create_directories(elsewhere);
  fs::copy(run_ / "step-00000002", copy, fs::copy_options::recursive);
  replace_file(elsewhere / "metrics.jsonl", "{\"mine\": 1}\n");
  const Arguments resume{"train", "--resume", copy.string(), "--peak", "100", "--quiet"};
  wrong(resume, {copy.string(), "is a copy of a checkpoint", "--out"});
  EXPECT_EQ(read_file(elsewhere / "metrics.jsonl"), "{\"mine\": 1}\n");
  Arguments with_out = resume;
  with_out.insert(with_out.end(), {"--out", (dir_ / "on").string()});
  output_of(with_out);
  EXPECT_EQ(read_file(dir_ / "on/latest/model.safetensors"), read_file(run_ / "latest/model.safetensors"));
  // by the name of a checkpoint, too
  fs::rename(copy, elsewhere / "step-00000002");
  wrong({"train", "--resume", (elsewhere / "step-00000002").string(), "--peak", "100"}, {"is a copy", "--out"});
}

TEST_F(WrongModel, resumed_from_within_the_checkpoint) {
  fs::remove_all(run_ / "step-00000004");
  const std::string command = "cd " + (run_ / "step-00000002").string() + " && " + ISOBATH_PROGRAM +
                              " train --resume . --peak 100 --quiet > /dev/null 2> " + (dir_ / "error").string();
  EXPECT_EQ(std::system(command.c_str()), 0) << read_file(dir_ / "error");
  EXPECT_EQ(latest_checkpoint(run_)->step, 4);
}

TEST_F(WrongModel, weights_that_are_not_finite) {
  const fs::path file = run_ / "step-00000004/model.safetensors";
  std::string bytes = read_file(file);
  const SafetensorsFile tensors(file);
  const StoredTensor& tensor = tensors.tensors().at("model.layers.2.mlp.up_proj.weight");
  const size_t data = bytes.size() - [&] {
    size_t all = 0;
    for (const auto& [name, t] : tensors.tensors()) all += t.bytes.size();
    return all;
  }();
  const std::byte* first = tensor.bytes.data();
  for (const auto& [name, t] : tensors.tensors()) first = std::min(first, t.bytes.data());
  const float bad = std::nanf("");
  std::memcpy(bytes.data() + data + (tensor.bytes.data() - first), &bad, sizeof bad);
  replace_file(file, bytes);
  const Words words{run_.string(), "model.layers.2.mlp.up_proj.weight", "is not finite"};
  wrong({"eval", run_.string(), "--path", trained_->text}, words, 1);
  wrong({"generate", run_.string(), "--prompt", "a"}, words, 1);
  wrong(resume_, words, 1);
}

TEST_F(WrongModel, a_state_with_counts_beyond_all_runs) {
  const fs::path file = run_ / "step-00000004/state.json";
  const auto good = nlohmann::json::parse(read_file(file));
  for (const auto& [key, value] : std::vector<std::pair<std::string, int64_t>>{{"sequences", INT64_MAX - 1},
                                                                               {"sequences", 17},
                                                                               {"sequences", 3},
                                                                               {"tokens", INT64_MAX},
                                                                               {"step", INT64_MAX}}) {
    SCOPED_TRACE(key);
    auto bad = good;
    bad[key] = value;
    replace_file(file, bad.dump());
    wrong(resume({"--steps", "6"}), {"state.json", "do not go together", "another checkpoint"});
  }
}

// As programs copy it that know no links.
TEST_F(WrongModel, a_run_without_its_link_goes_on) {
  fs::remove(run_ / "latest");
  const Ended ended = run(resume({"--steps", "6"}));
  EXPECT_EQ(ended.code, 0) << ended.error;
  expect_in(ended.error, "the link latest is missing; step-00000004 is used instead");
  EXPECT_EQ(latest_checkpoint(run_)->step, 6);
}

// Before the first step there is nothing to save.
TEST_F(WrongModel, interrupted_while_it_prepares) {
  const std::string text = dir_.write("long.txt", synthetic_text(100'000)).string();
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string out = (dir_ / "early").string();
    for (int attempt = 0;; attempt++) {
      ASSERT_LT(attempt, 10) << "it always trains before the signal arrives";
      fs::remove_all(out);
      Program program(
          {"train", trained_->config, "--path", text, "--out", out, "--steps", "1000000"});  // measures the peak
      const fs::path maps = fmt::format("/proc/{}/maps", program.id());
      while (program.running() && read_file(maps).find("long.txt") == std::string::npos) ::usleep(500);
      program.signal(signal);
      const Ended ended = program.wait();
      EXPECT_EQ(ended.signal, 0);
      if (ended.code == 0) continue;
      EXPECT_EQ(ended.code, 128 + signal) << ended.error;
      EXPECT_FALSE(fs::exists(out));
      break;
    }
  }
}

}  // namespace
}  // namespace isobath
