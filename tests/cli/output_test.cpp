// What the commands print: JSON with the figures of the text, tables without repetition, text that is no command.
#include <gtest/gtest.h>

#include <cmath>

#include "wrong_input.h"

namespace isobath {
namespace {

using namespace testing;
using nlohmann::json;

class Printed : public WrongModel {
 protected:
  json printed(const Arguments& arguments) const { return json::parse(output_of(arguments)); }
};

TEST_F(Printed, evaluation_with_perplexity_and_bits_per_byte) {
  const json all = printed({"eval", run_.string(), "--path", trained_->text, "--json"});
  for (const char* name : {"top_k", "causal"}) {
    const double loss = all[name]["loss"];
    EXPECT_NEAR(all[name]["perplexity"], std::exp(loss), 1e-9);
    // bytes: a token is a byte, but for the one that ends the document
    EXPECT_NEAR(all[name]["bits_per_byte"], loss / std::log(2), 0.02 * loss);
  }
}

TEST_F(Printed, answers_to_multiple_choice) {
  const std::string file = dir_.write("questions.jsonl", R"({"context": "the", "choices": ["cat", "dog"], "answer": 0}
{"context": "a", "choices": ["b", "c", "d", "e"], "answer": 3})");
  const json all = printed({"eval", run_.string(), "--choices", file, "--json"});
  for (const char* name : {"top_k", "causal"}) {
    EXPECT_EQ(all[name]["questions"], 2);
    EXPECT_EQ(all[name]["guessing"], 0.375);
    const double accuracy = all[name]["accuracy"];
    EXPECT_TRUE(accuracy == 0 || accuracy == 0.5 || accuracy == 1) << accuracy;
  }
  wrong({"eval", run_.string()}, {"--path", "--choices"});
  wrong({"eval", run_.string(), "--choices", file, "--path", trained_->text}, {"--choices", "--path"});
  wrong({"eval", run_.string(), "--choices", file, "--windows", "1"}, {"--windows", "--choices"});
  wrong({"eval", run_.string(), "--choices", file, "--context", "100000"}, {"--context 100000 is longer"});
}

TEST_F(Printed, generation_with_its_statistics) {
  const json all = printed(
      {"generate", run_.string(), "--prompt", "the", "--prompt", "a", "--max-tokens", "5", "--ignore-eos", "--json"});
  ASSERT_EQ(all["texts"].size(), 2u);
  EXPECT_EQ(all["texts"][0]["prompt_tokens"], 3);
  const json& s = all["statistics"];
  EXPECT_EQ(s["prompt_tokens"], 4);
  EXPECT_EQ(s["generated_tokens"], 10);
  EXPECT_GT(s["prompt_tokens_per_s"], 0);
  EXPECT_GT(s["generated_tokens_per_s"], 0);
  const double bytes = s["kv_bytes"], dense = s["kv_dense_bytes"], share = s["blocks_run"];
  EXPECT_NEAR(bytes / dense, share, 1e-9);  // blocks are alike
  EXPECT_GE(s["kv_held_bytes"], bytes);
  ASSERT_EQ(s["routed"].size(), 2u);
  EXPECT_EQ(s["routed"][1]["block"], 3);
  ASSERT_EQ(s["kv_by_section"].size(), 4u);
  double sum = 0;
  for (size_t l = 0; l < 4; l++) {
    const json& section = s["kv_by_section"][l];
    EXPECT_EQ(section["block"], l);
    EXPECT_EQ(section["dense_bytes"], dense / 4);
    EXPECT_GE(section["held_bytes"], section["used_bytes"]);
    sum += double(section["used_bytes"]);
  }
  EXPECT_EQ(sum, bytes);
  EXPECT_EQ(s["kv_by_section"][0]["used_bytes"], dense / 4) << "the first block is dense";
}

TEST_F(Printed, no_prompt_of_a_request_that_is_refused) {
  const Ended ended = run({"generate", run_.string(), "--prompt", "the", "--max-tokens", "0"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
}

TEST_F(Printed, speculation_of_each_text_and_of_all) {
  const Arguments plain{"generate",      run_.string(), "--prompt",     "the", "--prompt",    "a",
                        "--temperature", "0",           "--max-tokens", "20",  "--ignore-eos"};
  Arguments drafting = plain;
  drafting.insert(drafting.end(), {"--speculate", "2"});
  const std::string shown = run(drafting).error;
  expect_in(shown, "speculation: ");
  expect_in(shown, " drafted tokens stand (");
  drafting.push_back("--json");
  const json all = printed(drafting), &s = all["statistics"]["speculation"];
  int64_t drafted = 0, accepted = 0;
  for (const json& text : all["texts"]) {
    drafted += int64_t(text["speculation"]["drafted_tokens"]);
    accepted += int64_t(text["speculation"]["accepted_tokens"]);
  }
  EXPECT_GT(drafted, 0);
  EXPECT_EQ(s["drafted_tokens"], drafted);
  EXPECT_EQ(s["accepted_tokens"], accepted);
  EXPECT_GT(s["draft_passes"], 0);
  Arguments without = plain;
  without.push_back("--json");
  const json expected = printed(without);
  for (size_t i = 0; i < 2; i++) EXPECT_EQ(all["texts"][i]["tokens"], expected["texts"][i]["tokens"]);
  EXPECT_EQ(expected["statistics"]["speculation"]["rounds"], 0);
}

TEST_F(Printed, inspection) {
  const std::string text = "the pilot marks\xC2\x9B the deep line.";
  const json all = printed({"inspect", run_.string(), "--text", text, "--json"});
  EXPECT_EQ(all["by"], "causal");
  EXPECT_EQ(all["blocks"], 4);
  const size_t n = all["tokens"].size();
  EXPECT_EQ(n, text.size());
  EXPECT_EQ(all["entropy"].size(), n);
  ASSERT_EQ(all["layers"].size(), 2u);
  std::string again;
  for (const json& piece : all["pieces"]) again += piece["text"];
  EXPECT_EQ(again, text);
  for (const json& layer : all["layers"]) {
    EXPECT_EQ(layer["score"].size(), n);
    double routed = 0;
    for (const int r : layer["routed"]) routed += r;
    EXPECT_NEAR(layer["share"], routed / double(n), 1e-9);
    EXPECT_EQ(layer["capacity"], 0.25);
    EXPECT_TRUE(layer.contains("recall"));
  }
  Arguments dense = trained_->train({"--topology", "dense"});
  dense[3] = (dir_ / "dense").string();
  output_of(dense);
  EXPECT_EQ(printed({"inspect", dense[3], "--text", "a", "--json"})["layers"].size(), 0u);
}

TEST_F(Printed, no_control_characters) {
  const std::string text =
      "a\x7F\xC2\x9B"
      "31m\x1B[31m\x05z";
  for (const char* colour : {"never", "always"}) {
    const std::string out = output_of({"inspect", run_.string(), "--text", text, "--color", colour});
    for (const char* control : {"\x7F", "\xC2\x9B", "\x05"}) EXPECT_EQ(out.find(control), std::string::npos) << colour;
  }
  expect_in(output_of({"inspect", run_.string(), "--text", text + "\u00A0\u00E9", "--color", "never"}),
            "\na??31m?[31m?z\u00A0\u00E9\n");
}

TEST_F(Printed, a_plan_says_equal_blocks_once) {
  const std::string plan = output_of({"plan", trained_->config, "--num-hidden-layers", "12", "--every", "2"});
  expect_in(plan, "\nblocks 0, 2, ..., 10 ");
  expect_in(plan, "\nblocks 1, 3, ..., 11 25% ");
  expect_in(plan, "\nblocks 0-11 ");  // the dense twin
  expect_in(output_of({"plan", trained_->config, "--blocks", "1", "--num-hidden-layers", "4"}), "\nblocks 0, 2, 3 ");
  const json all = printed({"plan", trained_->config, "--json"});
  EXPECT_EQ(all["model"]["blocks"].size(), 4u);
}

// A window of more documents than the default of max(1, T/64) is read as it was trained on.
TEST_F(Printed, evaluation_reads_windows_as_the_run_did) {
  std::string documents;
  for (int i = 0; i < 400; i++) documents += std::string(size_t(3 + i % 5), char('a' + i % 7)) + "\n<|endoftext|>\n";
  const std::string text = dir_.write("documents.txt", documents).string();
  for (const char* topology : {"joint", "dense"}) {
    SCOPED_TRACE(topology);
    const std::string out = (dir_ / topology).string();
    output_of({"train", trained_->config, "--path", text, "--out", out, "--topology", topology, "--capacity-scope",
               "document", "--attention-scope", "document", "--max-documents", "3", "--peak", "100", "--quiet"});
    const char* name = std::string(topology) == "dense" ? "dense" : "top_k";
    double trained = 0;
    for (const json& record : metrics_of(out))
      if (record["event"] == "eval") trained = record["top_k"]["loss"];
    const auto loss = [&](const Arguments& more) -> double {
      Arguments all{"eval", out, "--path", text, "--json"};
      all.insert(all.end(), more.begin(), more.end());
      return printed(all)[name]["loss"];
    };
    EXPECT_EQ(loss({}), trained);
    EXPECT_EQ(loss({"--max-documents", "3"}), trained);
    EXPECT_NE(loss({"--max-documents", "1"}), trained);
    EXPECT_EQ(loss({"--batch", "1048576"}), trained);  // buffers for the windows that there are
  }
  replace_file(dir_ / "joint/latest/state.json", "{}");
  const Ended ended = run({"eval", (dir_ / "joint").string(), "--path", text});
  EXPECT_EQ(ended.code, 0);
  expect_in(ended.error, "warning: ");
  expect_in(ended.error, "state.json");
}

}  // namespace
}  // namespace isobath
