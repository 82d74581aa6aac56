#include <gtest/gtest.h>

#include "cli_support.h"

namespace isobath {
namespace {

using namespace testing;

// The commands that the program's own help lists.
std::vector<std::string> commands() {
  std::vector<std::string> names;
  bool listed = false;
  for (const std::string& line : lines_of(output_of({"--help"}))) {
    if (line.starts_with("Subcommands:"))
      listed = true;
    else if (line.empty() || line[0] != ' ')
      listed = false;
    else if (listed)
      names.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return names;
}

TEST(Help, every_command_has_one_with_an_example) {
  const std::vector<std::string> names = commands();
  for (const char* name : {"train", "eval", "generate", "plan", "tokenize", "bench"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const std::string help = output_of({name, "--help"});
    expect_in(help, "Examples:\n  isobath " + name + " ");
    expect_in(help, "Usage: isobath " + name);
  }
}

TEST(Help, every_option_of_a_run_is_a_flag) {
  const std::string help = output_of({"train", "--help"});
  const RunConfig config;
  for_each_option(config, [&](const char*, const char* key, const auto&, const char* text) {
    std::string flag = key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    expect_in(help, "--" + flag);
    expect_in(help, std::string(text).substr(0, 20));
  });
}

TEST(Help, as_a_command) {
  EXPECT_EQ(output_of({"help", "train"}), output_of({"train", "--help"}));
  EXPECT_EQ(output_of({"help"}), output_of({"--help"}));
}

TEST(Help, version) { expect_in(output_of({"--version"}), std::string("isobath ") + ISOBATH_VERSION + "\n"); }

// Lists are one word, with commas: the word after them is the config.
TEST(Flags, lists_leave_the_next_word_alone) {
  const Workplace work;
  const auto capacities = [&](const Arguments& arguments) {
    std::vector<double> all;
    const auto plan = nlohmann::json::parse(output_of(arguments));
    for (const auto& block : plan["model"]["blocks"]) all.push_back(block["capacity"]);
    return all;
  };
  const std::vector<double> want{1, 0.25, 0.5, 1};
  const std::string list = "0.9,0.25,0.5,0.9";
  EXPECT_EQ(capacities({"plan", work.config, "--json", "--capacity", list, "--blocks", "1,2"}), want);
  EXPECT_EQ(capacities({"plan", "--json", "--blocks", "1,2", "--capacity", list, work.config}), want);
  EXPECT_EQ(capacities({"plan", "--json", "--blocks=1,2", "--capacity=" + list, work.config}), want);
  EXPECT_EQ(capacities({"plan", "--json", "--blocks", "1", work.config}), (std::vector<double>{1, 0.25, 1, 1}));
  output_of(
      {"train", "--out", work.out, "--peak", "100", "--capacity", list, work.config});  // where it may be left out
  output_of({"train", "--out", (work.dir / "b").string(), "--peak", "100", "--blocks", "1,3", work.config});
}

TEST(Flags, switches_need_no_value) {
  const Workplace work;
  const auto parameters = [&](const Arguments& more) -> int64_t {
    Arguments all{"plan", work.config, "--json"};
    all.insert(all.end(), more.begin(), more.end());
    return nlohmann::json::parse(output_of(all))["model"]["total"]["parameters"];
  };
  const int64_t untied = parameters({}), head = 257 * 16;
  EXPECT_EQ(parameters({"--tie-word-embeddings"}), untied - head);
  EXPECT_EQ(parameters({"--tie-word-embeddings=true"}), untied - head);
  EXPECT_EQ(parameters({"--tie-word-embeddings=false"}), untied);
}

TEST(Flags, a_budget_wins_over_one_of_another_kind) {
  const Workplace work;
  output_of(work.train({"--tokens", "192"}));  // the file has steps
  EXPECT_EQ(latest_checkpoint(work.out)->step, 2);
}

TEST(Flags, with_dashes_or_underlines_win_over_the_file) {
  const Workplace work;
  for (const char* flag : {"--num-hidden-layers", "--num_hidden_layers"}) {
    const auto plan = nlohmann::json::parse(output_of({"plan", work.config, "--json", flag, "2"}));
    EXPECT_EQ(plan["model"]["blocks"].size(), 2u);
  }
  const auto plan = nlohmann::json::parse(output_of({"plan", work.config, "--json", "--topology", "dense"}));
  EXPECT_EQ(plan["model"], plan["dense_twin"]);
}

}  // namespace
}  // namespace isobath
