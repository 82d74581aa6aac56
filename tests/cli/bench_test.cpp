// `isobath bench train` on models so small that nothing is measured: the forms that scripts rely on.
#include <gtest/gtest.h>

#include "cli_support.h"

namespace isobath {
namespace {

using namespace testing;
using Json = nlohmann::json;

Arguments bench(const Arguments& more, const std::string& pairs = "2") {
  Arguments all{"bench", "train", "--threads=1", "--pairs", pairs};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
// Two blocks of width 32, the second one routed, on 2 x 32 tokens.
Arguments tiny(const Arguments& more, const std::string& pairs = "2") {
  Arguments all = bench(
      {"--hidden-size=32", "--num-attention-heads=2", "--num-hidden-layers=2", "--context=32", "--batch=2"}, pairs);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
Json json_of(const Arguments& more, const std::string& pairs = "2") {
  Arguments all = tiny(more, pairs);
  all.push_back("--json");
  return Json::parse(output_of(all));
}

void expect_model(const Json& model) {
  for (const char* each : {"step_ms", "parameter_ms", "peak_share"}) {
    ASSERT_EQ(model[each].size(), 2u) << each;
    for (const double value : model[each]) EXPECT_GT(value, 0) << each;
  }
  for (size_t pair = 0; pair < 2; pair++) EXPECT_LT(model["parameter_ms"][pair], model["step_ms"][pair]);
  for (const char* one : {"tokens_per_s", "model_flops", "utilisation_flops", "planned_bytes"})
    EXPECT_GT(model[one], 0) << one;
  EXPECT_TRUE(model["model_flops"].is_number_integer());
  EXPECT_TRUE(model["anonymous_bytes"].is_number_integer() || model["anonymous_bytes"].is_null());
}

TEST(Bench, AloneListsWhatCanBeMeasured) {
  expect_in(output_of({"bench"}), "isobath bench train");
  EXPECT_EQ(output_of({"bench"}), output_of({"bench", "--help"}));
}

TEST(Bench, JsonHasBothModelsAndTheirRatio) {
  const Json json = json_of({});
  for (const char* key : {"cpu", "threads", "simd", "fma_gflop_s", "read_gb_s"})
    EXPECT_TRUE(json["machine"].contains(key)) << key;
  EXPECT_EQ(json["config"], Json::parse(R"({"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
                                            "vocab_size": 257, "context": 32, "batch": 2})"));
  expect_model(json["dense"]);
  expect_model(json["mod"]);
  ASSERT_EQ(json["time_ratio"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["time_ratio"][1], double(json["mod"]["step_ms"][1]) / double(json["dense"]["step_ms"][1]));
  for (const auto& [ratio, flops] :
       {std::pair("flop_ratio", "utilisation_flops"), std::pair("budget_flop_ratio", "model_flops")})
    EXPECT_DOUBLE_EQ(json[ratio], double(json["mod"][flops]) / double(json["dense"][flops]));
  EXPECT_NE(json["flop_ratio"], json["budget_flop_ratio"]);
  EXPECT_FALSE(json.contains("profile"));
}

TEST(Bench, OneModelAlone) {
  const Json both = json_of({});
  for (const auto& [one, other] : {std::pair("dense", "mod"), std::pair("mod", "dense")}) {
    const Json json = json_of({"--models", one});
    expect_model(json[one]);
    EXPECT_EQ(json[one]["model_flops"], both[one]["model_flops"]);
    EXPECT_EQ(json[one]["planned_bytes"], both[one]["planned_bytes"]);
    for (const char* absent : {other, "time_ratio", "flop_ratio"}) EXPECT_FALSE(json.contains(absent)) << absent;
  }
}

TEST(Bench, ProfileAddsUpToTheStep) {
  const Json json = json_of({"--profile"});
  for (const char* model : {"dense", "mod"}) {
    const Json& profile = json["profile"][model];
    double products = 0, others = 0, last = 1e30;
    for (const Json& op : profile["ops"]) {
      (op["product"] ? products : others) += double(op["ms"]);
      EXPECT_GT(op["bytes"], 0) << op;
      EXPECT_LE(op["ms"], last) << "the longest stand first";
      last = op["ms"];
    }
    EXPECT_NEAR(products, profile["products_ms"], 1e-9);
    EXPECT_NEAR(others, profile["no_product_ms"], 1e-9);
    EXPECT_NEAR(products + others + double(profile["outside_ms"]), profile["ms"], 1e-9);
    EXPECT_GE(profile["outside_ms"], 0);
  }
  const std::string text = output_of(tiny({"--profile"}));
  for (const char* part : {"linear_backward_weight", "adamw_step", "select_top_k", "outside ops", "what is no product"})
    expect_in(text, part);
}

// Goals are not for models of this size. At width 384 and 2,048 rows a dense step has one, and the exit code follows
// it.
TEST(Bench, CheckFollowsTheGoals) {
  const Ended nothing = run(tiny({"--check", "--json"}));
  EXPECT_TRUE(Json::parse(nothing.out)["goals"].empty());
  EXPECT_EQ(nothing.code, 2);
  expect_in(nothing.error, "no goal for a model and batch of this size");
  const Ended ended = run(bench({"--num-hidden-layers=1", "--batch=2", "--models=dense", "--check", "--json"}, "1"));
  const Json goals = Json::parse(ended.out)["goals"];
  ASSERT_EQ(goals.size(), 1u);
  EXPECT_EQ(goals[0]["name"], "dense_peak_share");
  EXPECT_EQ(goals[0]["limit"], 0.65);
  EXPECT_EQ(goals[0]["holds"], double(goals[0]["value"]) >= 0.65);
  EXPECT_EQ(ended.code, goals[0]["holds"] ? 0 : 1) << ended.error;
}

TEST(Bench, SavingMemoryIsTimedBesideNotSavingIt) {
  const Json plain = json_of({}), saving = json_of({"--storage=bf16", "--recompute=blocks", "--beside-plain"});
  EXPECT_EQ(saving["config"]["storage"], "bf16");
  EXPECT_EQ(saving["config"]["recompute"], "blocks");
  for (const char* model : {"dense", "mod"}) {
    EXPECT_LT(saving[model]["planned_bytes"], plain[model]["planned_bytes"]);
    for (const char* ratio : {"over_plain", "cpu_over_plain"}) {
      EXPECT_EQ(saving[model][ratio].size(), 2u);
      EXPECT_FALSE(plain[model].contains(ratio));
    }
  }
  expect_in(output_of(tiny({"--storage=bf16", "--beside-plain"})), "MoD    over a step that saves no memory: time ");
}

TEST(Bench, ScanGoesAroundTheModel) {
  const TempDir dir;
  const std::string page = (dir / "scan.html").string();
  const Json json = json_of({"--scan", "--seconds", "200", "--html", page}, "1");
  std::vector<std::string> axes;
  size_t points = 0;
  for (const Json& axis : json["scan"]) {
    axes.push_back(axis["axis"]);
    points += axis["points"].size();
    EXPECT_TRUE(axis["left_out"].empty()) << axis;
    for (const Json& point : axis["points"]) {
      EXPECT_EQ(point["time_ratio"].size(), 1u);
      if (axis["axis"] == "context") {
        EXPECT_EQ(int64_t(point["config"]["context"]) * int64_t(point["config"]["batch"]), 8 * 32);
      }
    }
  }
  EXPECT_EQ(axes, (std::vector<std::string>{"context", "width", "depth", "batch", "capacity"}));
  EXPECT_EQ(points, 6u + 4u + 3u + 3u + 5u);
  expect_in(read_file(page), "Against capacity");
}

TEST(Bench, ScanLeavesOutWhatThereIsNoTimeFor) {
  const Json json = json_of({"--scan", "--seconds", "0.001"});
  for (const Json& axis : json["scan"]) EXPECT_TRUE(axis["points"].empty()) << axis;
}

Arguments generate(const Arguments& more) {
  Arguments all{"bench",
                "generate",
                "--threads=1",
                "--hidden-size=32",
                "--num-attention-heads=2",
                "--num-hidden-layers=4",
                "--context=40",
                "--tokens=20",
                "--batch",
                "1",
                "3"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Json json_of_generate(Arguments more) {
  more.push_back("--json");
  return Json::parse(output_of(generate(more)));
}

TEST(BenchGenerate, JsonHasBothModelsForEveryBatch) {
  for (const char* weights : {"fp32", "bf16", "int8"}) {
    const Json json = json_of_generate({"--weights", weights, "--kv", "bf16"});
    EXPECT_EQ(json["config"]["weights"], weights);
    EXPECT_GT(json["machine"]["read_gb_s"], 0);
    ASSERT_EQ(json["batches"].size(), 2u);
    for (const Json& batch : json["batches"])
      for (const char* model : {"dense", "mod"}) {
        ASSERT_EQ(batch[model]["pass_ms"].size(), 19u);
        EXPECT_EQ(batch[model]["bound_shares"].size(), 2u) << "of 16 passes, and of the 3 left";
        for (const char* one : {"tokens_per_s", "bound_share", "first_token_ms", "prompt_tokens_per_s"})
          EXPECT_GT(batch[model][one], 0) << one;
      }
    const Json& three = json["batches"][1];
    EXPECT_EQ(three["batch"], 3);
    // 39 rows of each sequence, keys and values of 32 numbers of 2 bytes in each of 4 layers
    EXPECT_EQ(three["dense"]["kv_used_bytes"], 3 * 39 * 4 * 128);
    EXPECT_EQ(three["mod"]["kv_dense_bytes"], 3 * 39 * 4 * 128);
    EXPECT_LT(three["mod"]["routed_share"], 0.5);
    EXPECT_LT(three["mod"]["pass_bytes"][0], three["dense"]["pass_bytes"][0]);
    EXPECT_EQ(json["goals"].size(), 0u);
  }
}

TEST(BenchGenerate, ProfileAddsUpToAPass) {
  const Json json = json_of_generate({"--profile"});
  for (const Json& batch : json["batches"])
    for (const char* model : {"dense", "mod"}) {
      const Json& profile = batch[model]["profile"];
      double sum = profile["outside_ms"];
      for (const Json& op : profile["ops"]) sum += double(op["ms"]);
      EXPECT_NEAR(sum, profile["ms"], 1e-9);
      EXPECT_GE(profile["outside_ms"], 0);
      EXPECT_NE(std::find(batch[model]["pass_ms"].begin(), batch[model]["pass_ms"].end(), profile["ms"]),
                batch[model]["pass_ms"].end());
    }
  EXPECT_FALSE(json_of_generate({})["batches"][0]["dense"].contains("profile"));
  const std::string text = output_of(generate({"--profile"}));
  for (const char* part : {"MoD, batch 3, the quickest pass", "frozen_linear_forward", "select_above", "of pass"})
    expect_in(text, part);
}

TEST(BenchGenerate, DraftsTakeTurnsWithBothModels) {
  const Json json = json_of_generate({"--speculate=2"});
  for (const Json& batch : json["batches"]) {
    ASSERT_EQ(batch["mod"]["pass_ms"].size(), 19u);
    const Json& drafting = batch["drafting"];
    EXPECT_LT(drafting["pass_ms"].size(), 19u) << "rounds of more than a token";
    EXPECT_EQ(drafting["drafts"], 2);
    const double tokens = double(drafting["tokens_per_s"]) / double(batch["mod"]["tokens_per_s"]);
    EXPECT_DOUBLE_EQ(drafting["net_speed"], tokens);
    EXPECT_GT(drafting["round_passes"], 0);
    EXPECT_LE(drafting["mean_accepted"], 2);
    EXPECT_NEAR(drafting["accepted_share"], double(drafting["mean_accepted"]) / 2, 1e-12);
  }
  const std::string text = output_of(generate({"--speculate=2"}));
  for (const char* word : {"MoD drafting, batch 3", "batch 1, 2 drafted: speed", "if all stood"}) expect_in(text, word);
}

TEST(BenchGenerate, OfAModelThatIsThereTakesNoSizes) {
  const Ended ended = run({"bench", "generate", "--model", "runs/one", "--hidden-size", "32"});
  EXPECT_EQ(ended.code, 2);
  expect_in(ended.error, "--model names a model that is there");
}

TEST(BenchGenerate, TableNamesWhatItMeasures) {
  const std::string text = output_of(generate({}));
  for (const char* word : {"dense, batch 1", "MoD, batch 3", "of memory bound", "first token ms", "speed MoD / dense"})
    expect_in(text, word);
}

}  // namespace
}  // namespace isobath
