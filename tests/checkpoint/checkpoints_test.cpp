#include "checkpoint/checkpoints.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "checkpoint_support.h"
#include "support/full_disk.h"
#include "support/temp_dir.h"

namespace isobath {
namespace {

using testing::check_whole;
using testing::FileSizeLimit;
using testing::save;
using testing::TempDir;
using testing::TinyDisk;

std::vector<int64_t> steps(const fs::path& root) {
  std::vector<int64_t> all;
  for (const SavedCheckpoint& c : list_checkpoints(root)) all.push_back(c.step);
  return all;
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(folder)) all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  return all;
}

template <class F>
void expect_error(F f, Fault fault, const std::string& part, const std::string& other = "") {
  try {
    f();
    ADD_FAILURE() << "no error that says " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), fault) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what() << "\n want: " << part;
    EXPECT_NE(std::string(e.what()).find(other), std::string::npos) << e.what() << "\n want: " << other;
  }
}

TEST(Checkpoints, the_newest_are_kept_and_latest_is_relative) {
  const TempDir dir;
  const fs::path root = dir / "runs/one";
  EXPECT_TRUE(list_checkpoints(root).empty());
  EXPECT_FALSE(latest_checkpoint(root));
  remove_unfinished(root);
  for (const int64_t step : {0, 100, 200, 123456789}) {
    const fs::path folder = save(root, step, 2);
    EXPECT_EQ(latest_checkpoint(root)->folder, folder);
    EXPECT_EQ(fs::read_symlink(root / "latest"), folder.filename());
    check_whole(root);
  }
  EXPECT_EQ(names(root), (std::vector<std::string>{"latest", "step-00000200", "step-123456789"}));
  fs::rename(dir / "runs", dir / "moved");
  EXPECT_EQ(fs::canonical(dir / "moved/one/latest").filename(), "step-123456789");
}

TEST(Checkpoints, the_same_step_is_replaced) {
  const TempDir dir;
  save(dir.path(), 5, 3);
  save_checkpoint(dir.path(), 5, 3, [](const fs::path& folder) { replace_file(folder / "only", "this"); });
  EXPECT_EQ(names(dir.path()), (std::vector<std::string>{"latest", "step-00000005"}));
  EXPECT_EQ(names(dir / "step-00000005"), (std::vector<std::string>{"complete", "only"}));
}

TEST(Checkpoints, later_steps_of_an_abandoned_run_are_left_alone) {
  const TempDir dir;
  for (const int64_t step : {10, 20, 30, 40}) save(dir.path(), step, 9);
  save(dir.path(), 25, 2);
  EXPECT_EQ(steps(dir.path()), (std::vector<int64_t>{20, 25, 30, 40}));
  EXPECT_EQ(latest_checkpoint(dir.path())->step, 25);
}

TEST(Checkpoints, only_whole_ones_are_listed) {
  const TempDir dir;
  save(dir.path(), 7, 1);
  dir.write("step-00000008/model", "no marker");
  dir.write("step-9/complete", "not our name");
  dir.write("step-00000009x/complete", "");
  dir.write("step--0000001/complete", "");
  dir.write("step-99999999999999999999/complete", "");
  dir.write("step-00000010", "a file");
  dir.write(".step-00000011.part/complete", "");
  EXPECT_EQ(steps(dir.path()), std::vector<int64_t>{7});
  for (const char* target : {"step-00000008", "gone", ".step-00000011.part", "../step-00000007"}) {
    fs::remove(dir / "latest");
    fs::create_symlink(target, dir / "latest");
    EXPECT_EQ(latest_checkpoint(dir.path())->step, 7) << target;
  }
  fs::remove(dir / "latest");
  EXPECT_EQ(latest_checkpoint(dir.path())->step, 7);
}

TEST(Checkpoints, what_a_killed_writer_left_is_removed_and_nothing_else) {
  const TempDir dir;
  save(dir.path(), 7, 1);
  dir.write(".step-00000008.part/model", "half");
  dir.write(".step-00000007.old/complete", "its name is taken");
  dir.write(".step-00000006.old/complete", "killed before the new one had the name");
  dir.write(".latest.part", "");
  dir.write(".step-12.part", "not ours");
  dir.write("config.toml", "the user's");
  remove_unfinished(dir.path());
  EXPECT_EQ(names(dir.path()),
            (std::vector<std::string>{".step-12.part", "config.toml", "latest", "step-00000006", "step-00000007"}));
  check_whole(dir / "none");
}

TEST(Checkpoints, a_failing_writer_leaves_the_older_ones) {
  const TempDir dir;
  save(dir.path(), 1, 1);
  const auto before = names(dir.path());
  const auto failing = [](const fs::path& folder) {
    replace_file(folder / "first", "x");
    throw std::runtime_error("non-finite");
  };
  EXPECT_THROW(save_checkpoint(dir.path(), 2, 1, failing), std::runtime_error);
  EXPECT_EQ(names(dir.path()), before);
  check_whole(dir.path());
}

TEST(Checkpoints, a_full_disk_leaves_the_older_ones) {
  const TempDir dir;
  save(dir.path(), 1, 1);
  const auto before = names(dir.path());
  for (const int64_t step : {1, 2}) {
    for (const rlim_t bytes : {0, 10, 5000}) {
      const FileSizeLimit limit(bytes);
      expect_error([&] { save(dir.path(), step, 1); }, Fault::kWork, dir.path(), "File too large");
    }
    EXPECT_EQ(names(dir.path()), before);
    check_whole(dir.path());
  }
  // Full when only the marker is missing.
  const auto nothing = [](const fs::path&) {};
  {
    const FileSizeLimit limit(0);
    expect_error([&] { save_checkpoint(dir.path(), 2, 1, nothing); }, Fault::kWork, "complete", "File too large");
  }
  EXPECT_EQ(names(dir.path()), before);
}

TEST(Checkpoints, a_disk_that_fills_up_or_turns_read_only_keeps_what_it_has) {
  const TempDir dir;
  TinyDisk disk(dir.path(), 80);  // room for two checkpoints, not for three
  if (!disk.mounted()) GTEST_SKIP() << "only the superuser may mount a small disk";
  save(dir.path(), 1, 9);
  save(dir.path(), 2, 9);
  const auto before = names(dir.path());
  for (const int64_t step : {2, 3})
    expect_error([&] { save(dir.path(), step, 1); }, Fault::kWork, dir.path(), "No space left on device");
  EXPECT_EQ(names(dir.path()), before);
  ASSERT_TRUE(disk.make_read_only());
  for (const int64_t step : {2, 3})
    expect_error([&] { save(dir.path(), step, 1); }, Fault::kWork, dir.path(), "Read-only file system");
  EXPECT_EQ(names(dir.path()), before);
  EXPECT_EQ(latest_checkpoint(dir.path())->step, 2);
  check_whole(dir.path());
}

TEST(Checkpoints, places_that_cannot_be_written_are_named) {
  const TempDir dir;
  const fs::path file = dir.write("file", "x");
  expect_error([&] { save(file, 1, 1); }, Fault::kWork, file.string(), "Not a directory");
  expect_error([&] { save(file / "below", 1, 1); }, Fault::kWork, (file / "below").string(), "Not a directory");
  expect_error([&] { save("/proc/none", 1, 1); }, Fault::kWork, "/proc/none", "cannot create");
  dir.write("root/latest/in the way", "x");
  expect_error([&] { save(dir / "root", 1, 1); }, Fault::kWork, (dir / "root/latest").string());
  EXPECT_EQ(latest_checkpoint(dir / "root")->step, 1);
  expect_error([&] { save(dir / "root", -1, 1); }, Fault::kInput, "step -1");
  expect_error([&] { save(dir / "root", 1, 0); }, Fault::kInput, "keep 0");
}

TEST(FindModelFolder, takes_what_a_user_may_mean) {
  const TempDir dir;
  dir.write("plain/config.json", "{}");
  EXPECT_EQ(find_model_folder(dir / "plain"), dir / "plain");
  EXPECT_EQ(find_model_folder(dir / "plain/config.json"), dir / "plain");
  const auto write = [](const fs::path& folder) { replace_file(folder / "config.json", "{}"); };
  save_checkpoint(dir / "run", 1, 2, write);
  save_checkpoint(dir / "run", 2, 2, write);
  dir.write("run/config.json", "the run's own");
  EXPECT_EQ(find_model_folder(dir / "run"), dir / "run/step-00000002");
  EXPECT_EQ(find_model_folder(dir / "run/step-00000001"), dir / "run/step-00000001");
  EXPECT_EQ(find_model_folder(dir / "run/latest"), dir / "run/latest");
}

TEST(FindModelFolder, says_what_was_looked_for) {
  const TempDir dir;
  const auto find = [&](const char* name) { return [&dir, name] { find_model_folder(dir / name); }; };
  expect_error(find("none"), Fault::kInput, "none: no such file or folder", "config.json");
  dir.write("model.gguf", "x");
  expect_error(find("model.gguf"), Fault::kInput, "model.gguf: not a model", "config.json");
  dir.write("empty/.step-00000001.part/config.json", "{}");
  expect_error(find("empty"), Fault::kInput, "looked for latest/, whole checkpoints step-*/ and config.json");
  save(dir / "run", 1, 1);
  expect_error(find("run"), Fault::kInput, "latest checkpoint step-00000001 has no config.json");
  fs::remove(dir / "run/step-00000001/complete");
  expect_error(find("run"), Fault::kInput,
               "step-00000001, which latest names, is not whole: it has no file 'complete'");
}

TEST(PassedOver, says_which_and_why) {
  const TempDir dir;
  const fs::path run = dir / "run";
  EXPECT_EQ(passed_over(run), "");
  for (int64_t step = 1; step <= 3; step++) save(run, step, 3);
  EXPECT_EQ(passed_over(run), "");
  EXPECT_EQ(passed_over(run / "step-00000001"), "");
  const std::string where = run.string() + ": ", used = "; step-00000002 is used instead";
  fs::remove(run / "step-00000003/complete");
  EXPECT_EQ(passed_over(run),
            where + "step-00000003, which latest names, is not whole: it has no file 'complete'" + used);
  EXPECT_EQ(passed_over(run.string() + "/"), passed_over(run));
  fs::remove_all(run / "step-00000003");
  EXPECT_EQ(passed_over(run), where + "step-00000003, which latest names, is missing" + used);
  fs::remove(run / "latest");
  EXPECT_EQ(passed_over(run), where + "the link latest is missing" + used);
  fs::create_symlink("elsewhere", run / "latest");
  EXPECT_EQ(passed_over(run), where + "the link latest leads to elsewhere, which is no checkpoint of the run" + used);
}

TEST(BelongsToRun, tells_a_copy_from_a_checkpoint) {
  const TempDir dir;
  const fs::path run = dir / "run";
  save(run, 1, 3);
  save(run, 2, 3);
  EXPECT_TRUE(belongs_to_run(run / "step-00000001"));
  EXPECT_TRUE(belongs_to_run(run / "latest"));
  EXPECT_FALSE(belongs_to_run(run));
  EXPECT_FALSE(belongs_to_run(run / "step-00000003"));
  fs::copy(run / "step-00000001", dir / "step-00000001", fs::copy_options::recursive);
  EXPECT_FALSE(belongs_to_run(dir / "step-00000001"));
  fs::copy(run / "step-00000001", run / "kept", fs::copy_options::recursive);
  EXPECT_FALSE(belongs_to_run(run / "kept"));
}

TEST(SaveCheckpoint, stays_when_only_the_link_cannot_be_moved) {
  const TempDir dir;
  const fs::path run = dir / "run";
  dir.write("run/latest/in the way", "");
  expect_error([&] { save(run, 1, 1); }, Fault::kWork, "cannot write", "latest");
  ASSERT_EQ(list_checkpoints(run).size(), 1u);
  EXPECT_EQ(list_checkpoints(run)[0].step, 1);
}

}  // namespace
}  // namespace isobath
