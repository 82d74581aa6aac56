// A study's file as a list of runs: a function of the file alone.
#include "lab/study.h"

#include <gtest/gtest.h>

#include <set>

#include "train/train_support.h"

namespace isobath {
namespace {

using testing::error_of;
using testing::expect_in;
using testing::TempDir;

// Four blocks of width 16; a sequence of the dense model takes 2.5 MFLOPs: 2e9 are 800 of them.
const std::string kHead =
    "[study]\nflops = [2e9, 8e9]\nseeds = [1, 2, 3]\n"
    "[model]\nhidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 4\n"
    "[routing]\ntopology = \"joint\"\ncapacity = 0.25\n"
    "[data]\ncontext = 24\nbatch = 4\n";
const std::string kVariants =
    "[[variant]]\nname = \"dense\"\nrouting.topology = \"dense\"\n"
    "[[variant]]\nname = \"joint\"\n"
    "[[variant]]\nname = \"half\"\nrouting.every = 1\nrouting.capacity = 0.5\n";

Study study_of(const std::string& text) {
  const TempDir dir;
  return read_study(dir.write("some-study.toml", text));
}
std::vector<PlannedRun> plan(const std::string& text) { return plan_study(study_of(text), Tokenizer::bytes()); }
std::string refusal(const std::string& text) {
  return error_of([&] { plan(text); }).what();
}

TEST(Study, every_combination_with_seeds_slowest) {
  const auto runs =
      plan(kHead + kVariants + "[[size]]\nname = \"thin\"\n[[size]]\nname = \"wide\"\nmodel.hidden_size = 32\n");
  ASSERT_EQ(runs.size(), 3u * 2 * 2 * 3);
  EXPECT_EQ(runs[0].label(), "dense, thin, 2e+09 FLOPs, seed 1");
  EXPECT_EQ(runs[1].label(), "joint, thin, 2e+09 FLOPs, seed 1");
  EXPECT_EQ(runs[3].label(), "dense, wide, 2e+09 FLOPs, seed 1");
  EXPECT_EQ(runs[6].label(), "dense, thin, 8e+09 FLOPs, seed 1");
  EXPECT_EQ(runs[12].label(), "dense, thin, 2e+09 FLOPs, seed 2");
  EXPECT_EQ(runs[3].config.model.hidden_size, 32);
  EXPECT_EQ(runs[5].config.model.routing.every, 1);
  EXPECT_EQ(runs[5].config.model.routing.capacity, std::vector<double>{0.5});
  EXPECT_EQ(runs[12].config.train.seed, 2u);
  EXPECT_EQ(study_of(kHead).name, "some-study");
}

TEST(Study, a_grid_takes_one_value_of_each_key) {
  const auto runs = plan(kHead + "[grid]\nrouting.capacity = [0.25, 0.5]\nrouting.every = [1, 2]\n");
  ASSERT_EQ(runs.size(), 3u * 2 * 4);
  EXPECT_EQ(runs[1].grid, (nlohmann::json{{"routing.capacity", 0.25}, {"routing.every", 2}}));
  EXPECT_EQ(runs[2].config.model.routing.capacity, std::vector<double>{0.5});
  EXPECT_EQ(runs[2].label(), "capacity = 0.5, every = 1, 2e+09 FLOPs, seed 1");
}

TEST(Study, equal_runs_are_listed_once) {
  const auto runs = plan(kHead + kVariants + "[grid]\nrouting.aux_weight = [0.01, 0.02]\n");
  EXPECT_EQ(runs.size(), 3u * 2 * (1 + 2 + 2)) << "the dense model has no auxiliary loss";
}

TEST(Study, names_are_of_what_decides_the_result) {
  const auto runs = plan(kHead + kVariants);
  std::set<std::string> names, recipes;
  for (const PlannedRun& run : runs) {
    names.insert(run.name);
    recipes.insert(run.recipe);
    EXPECT_EQ(run.name.size(), 16u);
  }
  EXPECT_EQ(names.size(), runs.size());
  EXPECT_EQ(recipes.size(), 2u * 3) << "seeds share a recipe";
  EXPECT_EQ(runs[0].recipe, runs[6].recipe);
  const auto renamed = plan(kHead +
                            "path = \"x\"\n[train]\nthreads = 3\nsave_every = 7\neval_every = 9\n[[variant]]\nname = "
                            "\"d\"\nrouting.topology = \"dense\"\n");
  EXPECT_EQ(renamed[0].name, runs[0].name);
  const auto other = plan(kHead + "[train]\nclip = 0.5\n" + kVariants);
  EXPECT_FALSE(names.contains(other[0].name));
}

TEST(Study, steps_follow_from_budget_and_counted_flops) {
  for (const PlannedRun& run : plan(kHead + kVariants)) {
    EXPECT_NEAR(run.budget.flops, run.config.train.flops, 1e-3 * run.config.train.flops) << run.label();
    EXPECT_NEAR(3 * run.flops_per_token * double(run.tokens()), run.budget.flops, 1e-9 * run.budget.flops);
    EXPECT_EQ(run.flops_per_token == run.dense_flops_per_token, run.variant == "dense");
  }
}

TEST(Study, budgets_may_be_tokens) {
  std::string text = kHead + kVariants;
  text.replace(text.find("flops = [2e9, 8e9]"), 18, "tokens = [960, 2e4]");
  const auto runs = plan(text);
  ASSERT_EQ(runs.size(), 3u * 2 * 3);
  EXPECT_EQ(runs[1].label(), "joint, 960 tokens, seed 1");
  for (const PlannedRun& run : runs) {
    EXPECT_NEAR(double(run.tokens()), run.asked(), 12) << run.label();  // within half a sequence
    EXPECT_NEAR(3 * run.flops_per_token * double(run.tokens()), run.budget.flops, 1e-9 * run.budget.flops);
  }
  EXPECT_EQ(runs[0].tokens(), runs[1].tokens());
  EXPECT_LT(runs[1].budget.flops, runs[0].budget.flops);
  expect_in(refusal(kHead + "[[variant]]\nname = \"x\"\ntrain.tokens = 5\n"),
            "train.tokens is not an option of a study");
  expect_in(refusal("[study]\nflops = 1e9\ntokens = 1e6\n"), "flops or in tokens, not both");
  expect_in(refusal("[study]\ntokens = 1e30\n"), "toml:2: study.tokens is 1e+30");
}

TEST(Study, parts_make_up_the_whole) {
  for (const int64_t of : {1, 2, 5})
    for (size_t run = 0; run < 11; run++) {
      int64_t held = 0;
      for (int64_t index = 1; index <= of; index++) held += parse_part(fmt::format("{}/{}", index, of)).holds(run);
      EXPECT_EQ(held, 1);
    }
  for (const char* wrong : {"", "2", "0/2", "3/2", "1/0", "1/2x", "a/b", "-1/2", "1/"})
    EXPECT_THROW(parse_part(wrong), Error) << wrong;
}

TEST(Study, what_is_wrong_is_named_with_its_line) {
  const auto wrong = [](const std::string& text, const std::string& found) {
    const std::string message = refusal(text);
    expect_in(message, found);
  };
  wrong("[study]\nseeds = [1]\n", "no budget");
  wrong("[study]\nflops = 0\n", "toml:2: study.flops is 0");
  wrong("[study]\nflops = [1e9, 1e9]\n", "toml:2: study.flops names one twice");
  wrong("[study]\nflops = 1e9\nseeds = [1.5]\n", "toml:3: study.seeds is 1.5");
  wrong("[study]\nflops = 1e9\nseed = 1\n", "toml:3: study.seed");
  wrong(kHead + "[modle]\nx = 1\n", "unknown section [modle]");
  wrong(kHead + "[train]\nlerning_rate = 1\n", "unknown key train.lerning_rate");
  wrong(kHead + "[train]\nflops = 1e9\n", "train.flops is not an option of a study");
  wrong(kHead + "[train]\nseed = 4\n", "train.seed is not an option of a study");
  wrong(kHead + "[[variant]]\nrouting.every = 1\n", "this variant has no name");
  wrong(kHead + "[[variant]]\nname = \"a\"\nrouting.evry = 1\n", "unknown key routing.evry");
  wrong(kHead + "[[variant]]\nname = \"a\"\nrouting.every = \"x\"\n",
        "toml:16: routing.every is 'x', expected a whole number");
  wrong(kHead + "[[variant]]\nname = \"a\"\n[[variant]]\nname = \"a\"\n", "two of the name 'a'");
  wrong(kHead + "[variant]\nname = \"a\"\n", "[[variant]]");
  wrong(kHead + "[grid]\nrouting.every = 1\n", "expected a list of values");
  wrong(kHead + "[grid]\nrouting.evry = [1]\n", "unknown key routing.evry");
  wrong(kHead + "[grid]\ntrain.seed = [1]\n", "train.seed is not an option of a study");
  wrong(kHead + "[[variant]]\nname = \"over\"\nrouting.capacity = 2\n",
        "study some-study: over: routing.capacity is 2");
  wrong(kHead + "[train]\ncapacity_anneal = 0.5\n[grid]\nrouting.capacity = [0.5, 1.0]\n",
        "train.capacity_anneal = 0.5 lets capacity fall from 1");
}

TEST(Study, a_run_is_written_as_a_config_that_reads_back) {
  const TempDir dir;
  for (const PlannedRun& run : plan(kHead + kVariants)) {
    RunConfig back;
    read_toml(dir.write("run.toml", options_to_toml(run.config)), back);
    EXPECT_EQ(options_to_json(back), options_to_json(run.config));
  }
  RunConfig odd;
  odd.data.path = "a \"b\" \\ \xC3\xA9\n.txt";
  odd.train.flops = 1.2345678901234567e19;
  odd.train.learning_rate = 1e-5;
  odd.model.routing.blocks = {1, 3};
  odd.model.tie_word_embeddings = true;
  RunConfig back;
  read_toml(dir.write("run.toml", options_to_toml(odd)), back);
  EXPECT_EQ(options_to_json(back), options_to_json(odd));
}

}  // namespace
}  // namespace isobath
