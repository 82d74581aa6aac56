// The page of a study, as a reader gets it: written by the program and, where there is one, drawn by a real browser.
#include <gtest/gtest.h>

#include "browser.h"
#include "wrong_input.h"

namespace isobath {
namespace {

using namespace testing;

// Two budgets, three sizes, dense and routed; checkpoints are kept, so that one routed model can be looked into.
class Report : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    work_ = new TempDir;
    work_->write("text.txt", synthetic_text(120));
    work_->write("sizes.toml",
                 "[study]\ntitle = \"a small one\"\nflops = [4e8, 8e8]\nseeds = [1]\nkeep_checkpoints = true\n"
                 "[model]\nintermediate_size = 32\nnum_hidden_layers = 4\n"
                 "[routing]\ntopology = \"joint\"\ncapacity = 0.25\n"
                 "[data]\ncontext = 24\nbatch = 4\n[train]\neval_every = 10\n"
                 "[[size]]\nname = \"8\"\nmodel.hidden_size = 8\n"
                 "[[size]]\nname = \"16\"\nmodel.hidden_size = 16\n"
                 "[[size]]\nname = \"32\"\nmodel.hidden_size = 32\n"
                 "[[variant]]\nname = \"dense\"\nrouting.topology = \"dense\"\n[[variant]]\nname = \"joint\"\n"
                 "[[variant]]\nname = \"half\"\nrouting.capacity = 0.5\n");
    output_of({"sweep", at("sizes.toml"), "--path", at("text.txt"), "--out", at("study"), "--peak", "100", "--threads",
               "1", "--jobs", "2"});
    said_ = output_of({"report", at("study"), "--out", at("page.html"), "--figures", at("figures")});
  }
  static void TearDownTestSuite() { delete work_; }
  static std::string at(const std::string& name) { return (*work_ / name).string(); }
  static inline TempDir* work_ = nullptr;
  static inline std::string said_;
};

const char* const kFigures[] = {
    "top-k-causal", "loss-parameters", "loss-flops-per-pass", "capacity",       "learning-curves", "step-time",
    "memory",       "agreement",       "routing-map",         "routing-shares", "router-weights",  "entropy"};

TEST_F(Report, writes_over_pages_only) {
  work_->write("mine.txt", "not a page\n");
  expect_failure(run({"report", at("study"), "--out", at("mine.txt")}), 2, {"is there and is no page"});
  EXPECT_EQ(read_file(at("mine.txt")), "not a page\n");
  expect_failure(run({"report", at("study"), "--out", at("study")}), 2, {"is not the name of a page"});
  output_of({"report", at("study"), "--out", at("page.html")});
}

TEST_F(Report, a_run_counts_once_however_many_folders_hold_it) {
  fs::copy(at("study"), at("again"), fs::copy_options::recursive);
  const std::string twice = output_of({"report", at("study"), at("again"), at("study"), "--out", at("twice.html")});
  const auto table = [](const std::string& said) { return said.substr(0, said.find("page: ")); };
  EXPECT_EQ(table(twice), table(said_));
}

TEST_F(Report, writes_the_page_and_the_numbers_of_every_figure) {
  const std::string page = read_file(at("page.html"));
  for (const char* name : kFigures) {
    expect_in(page, std::string("data-name=\"") + name + "\"");
    const std::string csv = read_file(at("figures/" + std::string(name) + ".csv"));
    EXPECT_GE(count_of(csv, "\n"), 3) << name;
    const auto spec = nlohmann::json::parse(read_file(at("figures/" + std::string(name) + ".vg.json")));
    EXPECT_GE(spec["data"].size(), 1u);
  }
  EXPECT_EQ(count_of(page, "data-name=\""), int64_t(std::size(kFigures))) << "a figure that is not in the list";
  expect_in(said_, "half, 32");
  for (const char* outside : {"src=\"http", "href=\"http", "@import", "url(http"})
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
}

TEST_F(Report, plain_runs_side_by_side) {
  const Workplace plain;
  output_of(plain.train({"--steps", "12"}));
  Arguments dense = plain.train({"--steps", "12", "--topology", "dense"});
  dense[3] = (plain.dir / "other").string();
  output_of(dense);
  const std::string page = (plain.dir / "page.html").string();
  const std::string said = output_of({"report", plain.out, dense[3], "--out", page});
  expect_in(said, "run ");
  expect_in(said, "other ");
  expect_in(read_file(page), "data-name=\"routing-map\"");

  const fs::path metrics = fs::path(dense[3]) / "metrics.jsonl";
  std::string damaged = read_file(metrics);
  const size_t loss = damaged.rfind("\"loss\":") + 7;
  replace_file(metrics, damaged.replace(loss, damaged.find_first_of(",}", loss) - loss, "null"));
  const Ended ended = run({"report", dense[3], "--out", page});
  EXPECT_EQ(ended.code, 1);
  expect_in(ended.error, metrics.string() + ": damaged");
}

TEST_F(Report, says_what_is_no_study_and_no_run) {
  const TempDir empty;
  const Ended ended = run({"report", empty.path().string(), "--out", (empty / "page.html").string()});
  EXPECT_EQ(ended.code, 2);
  expect_in(ended.error, "neither records of a study");
}

TEST_F(Report, a_browser_draws_every_figure_offline_without_errors) {
  const std::string page = read_file(at("page.html"));
  if (const std::string missing = missing_to_draw(page); !missing.empty()) GTEST_SKIP() << missing;
  const std::string dom = drawn(at("page.html"), *work_);
  const int64_t charts = count_of(page, "class=\"chart\"");
  EXPECT_GE(charts, 11);
  EXPECT_EQ(count_of(dom, "<svg "), charts) << "a figure was not drawn";
  EXPECT_EQ(count_of(dom, ">SVG</button>"), charts);
}

}  // namespace
}  // namespace isobath
