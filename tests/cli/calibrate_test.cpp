// `isobath calibrate`: a folder that evaluates, generates and is inspected as the rule says.
#include <gtest/gtest.h>

#include "cli_support.h"

namespace isobath {
namespace {

using namespace testing;

TEST(Calibrate, writes_a_model_that_routes_what_was_asked) {
  const Workplace work;
  output_of(work.train());
  const std::string out = (work.dir / "calibrated").string();
  const std::string text = output_of({"calibrate", work.out, "--path", work.text, "--out", out, "--share", "0.5"});
  expect_in(text, "block 1    50.00%");
  expect_in(text, "loss by top-k");
  const auto json =
      nlohmann::json::parse(output_of({"eval", out, "--path", work.text, "--by", "causal", "--json"}))["causal"];
  for (const auto& layer : json["layers"]) EXPECT_NEAR(double(layer["share"]), 0.5, 0.02);
  EXPECT_TRUE(nlohmann::json::parse(read_file(fs::path(out) / "config.json"))["mixture_of_depths"]["router_offset"]);
  output_of({"generate", out, "--prompt", "the", "--max-tokens", "5"});
  output_of({"inspect", out, "--text", "the chart reads the deep line"});
  // Calibrated again, from the calibrated one.
  output_of({"calibrate", out, "--path", work.text, "--out", (work.dir / "again").string(), "--share", "0.2,0.7"});
}

// 24 tokens of which a tenth is to be taken: 2.4 +- 1.5.
TEST(Calibrate, warns_of_a_text_too_short_for_the_share) {
  const Workplace work;
  output_of(work.train());
  const auto told = [&](const char* name, const Arguments& more) {
    Arguments all{"calibrate", work.out, "--path", work.text, "--out", (work.dir / name).string(), "--share", "0.1"};
    all.insert(all.end(), more.begin(), more.end());
    return run(all).error;
  };
  expect_in(told("short", {"--windows", "1"}),
            "24 tokens say little of a share of 10%: on other text it may well be 61% of that off");
  EXPECT_EQ(told("long", {"--split", "all"}).find("give more text"), std::string::npos);
}

// The offset for all rows is infinite; a block of capacity 1 is meant to take all.
TEST(Calibrate, writes_shares_of_all_and_none_that_can_be_read) {
  const Workplace work;
  output_of(work.train({"--capacity", "1,1,0.25,0.25"}));
  const auto shares = [&](const char* name, const Arguments& more) {
    const std::string out = (work.dir / name).string();
    Arguments all{"calibrate", work.out, "--path", work.text, "--out", out};
    all.insert(all.end(), more.begin(), more.end());
    output_of(all);
    output_of({"generate", out, "--prompt", "the", "--max-tokens", "5"});
    std::vector<double> found;
    const auto json =
        nlohmann::json::parse(output_of({"eval", out, "--path", work.text, "--by", "causal", "--json"}))["causal"];
    for (const auto& layer : json["layers"]) found.push_back(layer["share"]);
    return found;
  };
  EXPECT_EQ(shares("ends", {"--share", "0,1"}), (std::vector<double>{0, 1}));
  EXPECT_EQ(shares("default", {})[0], 1) << "the capacity of block 1";
}

TEST(Calibrate, moves_the_rules_of_experts_that_choose) {
  const Workplace work;
  output_of(
      work.train({"--topology", "dense", "--experts", "3", "--experts-choice", "expert", "--experts-capacity", "0.3"}));
  const auto shares = [&](const std::string& folder) {
    std::vector<double> found;
    const auto json =
        nlohmann::json::parse(output_of({"eval", folder, "--path", work.text, "--by", "causal", "--json"}))["causal"];
    for (const auto& block : json["experts"])
      for (const double share : block["shares"]) found.push_back(share);
    return found;
  };
  const std::string out = (work.dir / "calibrated").string(), rising = (work.dir / "rising").string();
  const std::string text = output_of({"calibrate", work.out, "--path", work.text, "--out", out});
  expect_in(text, "block   0   30.00%");
  expect_in(text, "loss by top-k");
  for (const double share : shares(out)) EXPECT_NEAR(share, 0.3, 0.02);
  const auto config = nlohmann::json::parse(read_file(fs::path(out) / "config.json"))["mixture_of_depths"];
  EXPECT_TRUE(config["experts"]["experts_offset"]);
  EXPECT_FALSE(config["router_offset"]);
  output_of({"generate", out, "--prompt", "the", "--max-tokens", "5"});
  output_of({"quantize", out, "--type", "int8", "--out", (work.dir / "int8").string(), "--path", work.text});
  const auto seen = nlohmann::json::parse(output_of({"inspect", out, "--text", "the chart reads", "--json"}));
  EXPECT_EQ(seen["experts"][0]["given"].size(), 15u);
  // Calibrated again, from the calibrated one, to a share of each block.
  output_of({"calibrate", out, "--path", work.text, "--out", rising, "--share", "0,0.2,0.4,1"});
  const std::vector<double> found = shares(rising);
  const double wanted[] = {0, 0.2, 0.4, 1};
  for (size_t i = 0; i < found.size(); i++) EXPECT_NEAR(found[i], wanted[i / 3], 0.02) << i;
}

TEST(Calibrate, moves_routers_and_experts_of_staged_models) {
  const Workplace work;
  output_of(work.train({"--experts", "2", "--experts-choice", "expert", "--experts-capacity", "0.5"}));
  const std::string out = (work.dir / "calibrated").string();
  const std::string text =
      output_of({"calibrate", work.out, "--path", work.text, "--out", out, "--share", "0.5", "--experts-share", "0.4"});
  expect_in(text, "block 1    50.00%");
  expect_in(text, "block   1   40.00%");
  const auto json =
      nlohmann::json::parse(output_of({"eval", out, "--path", work.text, "--by", "causal", "--json"}))["causal"];
  for (const auto& layer : json["layers"]) EXPECT_NEAR(double(layer["share"]), 0.5, 0.02);
  for (const auto& block : json["experts"])
    for (const double share : block["shares"]) EXPECT_NEAR(share, 0.4, 0.03);
  const Ended ended = run(
      {"calibrate", work.out, "--path", work.text, "--out", (work.dir / "c").string(), "--experts-share", "0.1,0.2"});
  EXPECT_EQ(ended.code, 2);
  expect_in(ended.error, "--experts-share has 2 values");
}

TEST(Calibrate, refuses_what_has_no_rule_and_folders_in_use) {
  const Workplace work;
  output_of(work.train({"--causal", "none"}));
  const auto refused = [&](const std::string& model, const Arguments& more, const std::string& says) {
    Arguments all{"calibrate", model, "--path", work.text};
    all.insert(all.end(), more.begin(), more.end());
    const Ended ended = run(all);
    EXPECT_EQ(ended.code, 2);
    expect_in(ended.error, says);
  };
  const std::string free = (work.dir / "c").string();
  refused(work.out, {"--out", free}, "causal = none");
  const std::string dense = (work.dir / "dense").string(), bce = (work.dir / "bce").string();
  output_of({"train", work.config, "--out", dense, "--peak", "100", "--quiet", "--topology", "dense"});
  refused(dense, {"--out", free}, "dense model");
  const std::string experts = (work.dir / "experts").string();
  output_of({"train", work.config, "--out", experts, "--peak", "100", "--quiet", "--topology", "dense", "--experts",
             "2", "--experts-per-token", "1", "--no-ops", "1"});
  refused(experts, {"--out", free}, "tokens choose its experts");
  expect_in(run({"generate", experts, "--prompt", "the", "--max-tokens", "5"}).error, "no-op choices ");
  output_of({"train", work.config, "--out", bce, "--peak", "100", "--quiet"});
  refused(bce, {"--out", (fs::path(bce) / "latest").string()}, "is there already");
  refused(bce, {"--out", bce}, "is there already");  // its checkpoints would be taken instead
  refused(bce, {"--out", free, "--share", "0.1,0.2,0.3"}, "--share has 3 values");
  refused(bce, {"--out", free, "--share", "1.5"}, "--share is 1.5");
  refused(bce, {"--out", free, "--experts-share", "0.5"}, "experts that choose their rows");
  const std::string choose = (work.dir / "choose").string(), unruled = (work.dir / "unruled").string();
  const Arguments train{"train",     work.config, "--peak",           "100",    "--quiet", "--topology", "dense",
                        "--experts", "2",         "--experts-choice", "expert", "--out"};
  const auto trained = [&](Arguments all, std::initializer_list<std::string> more) {
    all.insert(all.end(), more);
    output_of(all);
  };
  trained(train, {choose});
  trained(train, {unruled, "--experts-causal", "none"});
  refused(choose, {"--out", free, "--share", "0.5", "--experts-share", "0.5"}, "leave one out");
  refused(unruled, {"--out", free}, "experts_causal = none");
}

}  // namespace
}  // namespace isobath
