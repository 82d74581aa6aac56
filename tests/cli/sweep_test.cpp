// Sweeps as people run them: stopped at any moment and started again they leave the records of an undisturbed one.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/version.h"
#include "cli_support.h"
#include "lab/record.h"

namespace isobath {
namespace {

using namespace testing;
using Json = nlohmann::json;

struct Study {
  TempDir dir;
  std::string text = dir.write("text.txt", synthetic_text(120)).string();
  std::string file = write("2e9");
  std::string out = (dir / "out").string();

  std::string write(const std::string& flops, const std::string& more = "", const std::string& train = "") const {
    return dir
        .write("tiny.toml", "[study]\nflops = " + flops +
                                "\nseeds = [1, 2]\n"
                                "[model]\nhidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 4\n"
                                "[routing]\ntopology = \"joint\"\ncapacity = 0.25\n"
                                "[data]\ncontext = 24\nbatch = 4\n[train]\neval_every = 50\n" +
                                train +
                                "[[variant]]\nname = \"dense\"\nrouting.topology = \"dense\"\n"
                                "[[variant]]\nname = \"joint\"\n" +
                                more)
        .string();
  }
  Arguments sweep(const std::string& into, const Arguments& more = {}) const {
    Arguments all{"sweep", file, "--path", text, "--out", into, "--peak", "100", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

std::vector<Json> records_in(const fs::path& file) {
  std::vector<Json> records;
  for (const std::string& line : lines_of(read_file(file))) records.push_back(Json::parse(line));
  return records;
}
// Without what a clock or another machine changes.
std::vector<Json> results_in(const fs::path& out) {
  std::vector<Json> records = records_in(out / "records.jsonl");
  for (Json& record : records) {
    record.erase("measured");
    record.erase("check");
  }
  return records;
}

TEST(Sweep, a_record_says_what_a_run_did) {
  const Study study;
  const std::string said = output_of(study.sweep(study.out));
  expect_in(said, "4 of 4 runs done, 0 failed");
  const auto records = records_in(fs::path(study.out) / "records.jsonl");
  ASSERT_EQ(records.size(), 4u);
  for (size_t i = 0; i < 4; i++) {
    const Json& r = records[i];
    const bool dense = i % 2 == 0;
    EXPECT_EQ(r["variant"], dense ? "dense" : "joint");
    EXPECT_EQ(r["seed"], i / 2 + 1);
    EXPECT_NEAR(r["flops"].get<double>(), 2e9, 2e6) << "as the steps summed it";
    EXPECT_EQ(r["tokens"].get<double>(), std::round(r["flops"].get<double>() / r["flops_per_token"].get<double>() / 3));
    EXPECT_EQ(r["top_k"]["layers"].size(), dense ? 0u : 2u);
    EXPECT_EQ(r.contains("causal"), !dense);
    EXPECT_GT(r["top_k"]["windows"], 1);
    EXPECT_GT(r["curve"]["validation"].size(), 2u);
    EXPECT_EQ(r["curve"]["validation"].back()[1], r["top_k"]["loss"]);
    EXPECT_EQ(r["curve"]["training"].size(), 100u);
    EXPECT_GT(r["measured"]["memory_bytes"], 1 << 20);
    EXPECT_EQ(r["measured"]["version"], build_version());
  }
  EXPECT_EQ(records[0]["recipe"], records[2]["recipe"]);
  EXPECT_TRUE(fs::is_empty(fs::path(study.out) / "runs")) << "checkpoints are not kept";

  const std::string again = output_of(study.sweep(study.out));
  EXPECT_EQ(again.find("done    "), std::string::npos) << "a finished run was repeated";
  EXPECT_EQ(records_in(fs::path(study.out) / "records.jsonl"), records);
}

TEST(Sweep, killed_at_any_moment_it_leaves_the_same_records) {
  Study study;
  study.file = study.write("2e9", "", "save_every = 5\n");
  const std::string calm = (study.dir / "calm").string();
  output_of(study.sweep(calm, {"--jobs", "2"}));
  std::mt19937 random(5);
  int kills = 0;
  for (; kills < 100; kills++) {
    Program program(study.sweep(study.out, {"--jobs", "2"}));
    ::usleep(20'000 * (unsigned(kills) + 1) + random() % 40'000);  // ever later, so that it is killed early and late
    program.signal(kills % 3 == 0 ? SIGTERM : SIGKILL);
    const Ended ended = program.wait();
    ASSERT_TRUE(ended.signal != 0 || ended.code == 0 || ended.code == 128 + SIGTERM) << ended.out << ended.error;
    if (ended.signal == 0 && ended.out.find(" 4 of 4 runs done") != std::string::npos) break;
  }
  EXPECT_GT(kills, 1);
  output_of(study.sweep(study.out));
  EXPECT_EQ(results_in(study.out), results_in(calm));
}

TEST(Sweep, parts_merge_to_the_whole) {
  const Study study;
  const std::string whole = (study.dir / "whole").string();
  output_of(study.sweep(whole));
  Program second(study.sweep(study.out, {"--only", "2/2"}));
  expect_in(output_of(study.sweep(study.out, {"--only", "1/2"})), "2 of 2 runs done");
  EXPECT_EQ(second.wait().code, 0);
  EXPECT_FALSE(fs::exists(fs::path(study.out) / "records.jsonl"));
  const auto first_half = records_in(fs::path(study.out) / "records-1-of-2.jsonl");
  ASSERT_EQ(first_half.size(), 2u);
  output_of(study.sweep(study.out));
  EXPECT_EQ(results_in(study.out), results_in(whole));
  EXPECT_EQ(records_in(fs::path(study.out) / "records.jsonl")[0], first_half[0]) << "taken over, not repeated";
}

TEST(Sweep, a_damaged_record_is_named_and_its_run_repeated) {
  const Study study;
  const fs::path file = fs::path(study.out) / "records.jsonl";
  output_of(study.sweep(study.out));
  const auto before = results_in(study.out);
  std::vector<std::string> lines = lines_of(read_file(file));
  const size_t at = lines[1].find("\"steps\":") + 8;
  lines[1][at] = lines[1][at] == '1' ? '2' : '1';
  replace_file(file, lines[0] + "\n" + lines[1] + "\n" + lines[2] + "\n" + lines[3].substr(0, 200) + "\n");
  const Ended ended = run(study.sweep(study.out));
  EXPECT_EQ(ended.code, 0);
  expect_in(ended.error, "records.jsonl:2: damaged");
  expect_in(ended.error, before[1]["run"]);
  expect_in(ended.error, "records.jsonl:4: not a JSON object");
  EXPECT_EQ(ended.out.find("done    dense"), std::string::npos);
  EXPECT_EQ(results_in(study.out), before);
}

TEST(Sweep, what_an_earlier_study_has_trained_is_not_repeated) {
  Study study;
  const std::string earlier = (study.dir / "earlier").string();
  output_of(study.sweep(earlier));
  study.file = study.write("2e9", "[[variant]]\nname = \"half\"\nrouting.capacity = 0.5\n");
  const Arguments after{"--after", earlier};
  Arguments dry = study.sweep(study.out, after);
  dry.push_back("--dry-run");
  expect_in(output_of(dry), "6 runs, 4 done");
  const std::string said = output_of(study.sweep(study.out, after));
  expect_in(said, "4 runs were trained by an earlier study");
  EXPECT_EQ(said.find("done    joint"), std::string::npos);
  expect_in(said, "6 of 6 runs done");
  const auto taken = results_in(study.out), whole = results_in(earlier);
  ASSERT_EQ(taken.size(), 6u);
  EXPECT_EQ(taken[0], whole[0]);
  EXPECT_EQ(taken[4], whole[3]) << "in the order of this study";

  // Its own names for them: the earlier study calls the same run otherwise.
  study.file = study.write("2e9");
  std::string text = read_file(study.file);
  text.replace(text.rfind("\"joint\""), 7, "\"routed\"");
  replace_file(study.file, text);
  const std::string renamed = (study.dir / "renamed").string();
  output_of(study.sweep(renamed, {"--after", earlier, "--after", study.out}));
  EXPECT_EQ(results_in(renamed)[1]["variant"], "routed");
  EXPECT_EQ(results_in(renamed)[1]["run"], whole[1]["run"]);

  // Not of another text, and not where checkpoints are wanted.
  const std::string other = study.dir.write("other.txt", synthetic_text(130)).string();
  EXPECT_EQ(run({"sweep", study.file, "--path", other, "--out", (study.dir / "other").string(), "--peak", "100",
                 "--after", earlier, "--dry-run"})
                .out.find("in --after"),
            std::string::npos);
  text.replace(text.find("seeds"), 0, "keep_checkpoints = true\n");
  replace_file(study.file, text);
  expect_in(output_of(study.sweep((study.dir / "kept").string(), {"--after", earlier, "--dry-run"})), "4 runs, 0 done");
}

TEST(Sweep, keeps_away_from_runs_and_models) {
  const Study study;
  for (const char* other : {"metrics.jsonl", "config.json"}) {
    const std::string folder = (study.dir / (std::string("of-") + other)).string();
    fs::create_directories(folder);
    replace_file(fs::path(folder) / other, "{}\n");
    const Ended ended = run(study.sweep(folder));
    EXPECT_EQ(ended.code, 2);
    expect_in(ended.error, "is the folder of a run or a model");
  }
  Arguments lost = study.sweep(study.out);
  lost.insert(lost.end(), {"--after", (study.dir / "nowhere").string()});
  expect_in(run(lost).error, "no records of a study there");
}

TEST(Sweep, failed_runs_are_told_at_the_end_and_by_the_exit_code) {
  Study study;
  study.file = study.write("2e9", "[[variant]]\nname = \"diverges\"\ntrain.learning_rate = 1e30\ntrain.clip = 0\n");
  const Ended ended = run(study.sweep(study.out));
  EXPECT_EQ(ended.code, 1);
  expect_in(ended.out, "failed: diverges");
  expect_in(ended.out, "4 of 6 runs done, 2 failed");
  EXPECT_EQ(records_in(fs::path(study.out) / "records.jsonl").size(), 4u);
}

TEST(Sweep, a_dry_run_starts_nothing) {
  const Study study;
  Arguments arguments{"sweep", study.file, "--out", study.out, "--dry-run", "--peak", "100"};
  const std::string said = output_of(arguments);
  expect_in(said, "joint, 2e+09 FLOPs, seed 2");
  expect_in(said, "4 runs, 0 done");
  EXPECT_FALSE(fs::exists(study.out));
  arguments[4] = "--dry-run";
  EXPECT_EQ(run({"sweep", study.file, "--out", study.out}).code, 2) << "there is no text";
}

TEST(Sweep, records_of_another_text_are_refused) {
  const Study study;
  output_of(study.sweep(study.out, {"--only", "1/4"}));
  const std::string other = study.dir.write("other.txt", synthetic_text(130)).string();
  for (const Arguments& more : {Arguments{}, Arguments{"--dry-run"}}) {
    Arguments all{"sweep", study.file, "--path", other, "--out", study.out, "--peak", "100"};
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended = run(all);
    EXPECT_EQ(ended.code, 2);
    expect_in(ended.error, "of another text");
  }
}

}  // namespace
}  // namespace isobath
