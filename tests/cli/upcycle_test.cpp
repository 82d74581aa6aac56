// `isobath upcycle`, and the training that follows.
#include <gtest/gtest.h>

#include "cli_support.h"

namespace isobath {
namespace {

using namespace testing;

TEST(Upcycle, of_a_dense_run_evaluates_alike_and_trains_on) {
  const Workplace work;
  output_of(work.train({"--topology", "dense"}));
  const std::string folder = (work.dir / "mod").string(), out = (work.dir / "tuned").string();
  output_of({"upcycle", work.out, "--out", folder, "--capacity", "0.25"});
  const auto loss = [&](const std::string& model, const char* name) -> double {
    return nlohmann::json::parse(output_of({"eval", model, "--path", work.text, "--json"}))[name]["loss"];
  };
  const double dense = loss(work.out, "dense");
  EXPECT_EQ(loss(folder, "top_k"), dense);
  EXPECT_EQ(loss(folder, "causal"), dense);
  output_of({"train", "--from", folder, "--path", work.text, "--context", "24", "--batch", "4", "--steps", "4",
             "--capacity-anneal", "0.5", "--peak", "100", "--quiet", "--out", out});
  const auto records = metrics_of(out);
  EXPECT_EQ(records[0]["layers"][0]["share"], 1);
  EXPECT_EQ(records[3]["layers"][0]["share"], 0.25);
  const auto config = nlohmann::json::parse(read_file(fs::path(out) / "latest/config.json"))["mixture_of_depths"];
  EXPECT_FALSE(config.contains("annealed"));
  output_of({"generate", out, "--prompt", "the", "--max-tokens", "4"});
  // And on from there, without the folder that it began with.
  fs::remove_all(folder);
  output_of({"train", "--resume", out, "--steps", "6", "--peak", "100", "--quiet"});

  const Ended shut = run({"upcycle", work.out, "--out", folder, "--router-bias=false"});
  EXPECT_EQ(shut.code, 2);
  expect_in(shut.error, "routing.router_bias = false");
  EXPECT_FALSE(fs::exists(folder));

  const Ended token = run({"upcycle", work.out, "--out", folder, "--choice", "token", "--causal", "none"});
  EXPECT_EQ(token.code, 2);
  expect_in(token.error, "set choice = expert");

  // A rule is moved to the capacity that a model ends with, so not on the way there.
  output_of({"upcycle", work.out, "--out", folder, "--capacity", "0.25"});
  const Ended early = run({"calibrate", folder, "--path", work.text, "--out", (work.dir / "moved").string()});
  EXPECT_EQ(early.code, 2);
  expect_in(early.error, "--capacity-anneal 0.5");
  fs::remove_all(folder);
  const std::string whole = output_of({"upcycle", work.out, "--out", folder, "--capacity", "1"});
  EXPECT_EQ(whole.find("--capacity-anneal"), whole.npos) << "nothing falls: " << whole;

  const Ended again = run({"upcycle", out, "--out", (work.dir / "twice").string()});
  EXPECT_EQ(again.code, 2);
  expect_in(again.error, "routed already");
}

}  // namespace
}  // namespace isobath
