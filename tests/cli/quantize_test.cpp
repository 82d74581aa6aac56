// `isobath quantize`: what it prints is what eval says of both folders, and what it refuses.
#include <gtest/gtest.h>

#include "support/full_disk.h"
#include "wrong_input.h"

namespace isobath {
namespace {

using namespace testing;
using nlohmann::json;

class Quantize : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    trained_ = std::make_unique<Workplace>();
    output_of(trained_->train());
  }
  static void TearDownTestSuite() { trained_.reset(); }
  Arguments quantize(const std::string& out, const Arguments& more = {}) const {
    Arguments all{"quantize", trained_->out, "--type", "int8", "--out", out};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void refused(const Arguments& arguments, const Words& words, int code = 2) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    expect_failure(run(arguments), code, words);
  }
  // Nothing but what was there: no folder, and no part of one.
  void expect_untouched() const { EXPECT_TRUE(fs::is_empty(dir_.path())); }

  static std::unique_ptr<Workplace> trained_;
  const TempDir dir_;
  const std::string out_ = (dir_ / "small").string();
};
std::unique_ptr<Workplace> Quantize::trained_;

TEST_F(Quantize, prints_the_losses_that_eval_prints) {
  const Arguments text{"--path", trained_->text, "--json"};
  const auto losses_of = [&](const std::string& model) {
    Arguments all{"eval", model};
    all.insert(all.end(), text.begin(), text.end());
    return json::parse(output_of(all));
  };
  const json before = losses_of(trained_->out);
  for (const char* type : {"int8", "bf16"}) {
    const std::string out = (dir_ / type).string();
    const json said = json::parse(
        output_of({"quantize", trained_->out, "--type", type, "--out", out, "--path", trained_->text, "--json"}));
    const json after = losses_of(out);
    for (const char* way : {"top_k", "causal"}) {
      EXPECT_EQ(said[way]["before"], before[way]) << type;
      EXPECT_EQ(said[way]["after"], after[way]) << type;
      EXPECT_NE(before[way]["loss"], after[way]["loss"]) << type;
    }
    EXPECT_LT(said["bytes_after"], said["bytes_before"]);
    EXPECT_EQ(said["loss_measured"], true);
    EXPECT_EQ(said["worst"].size(), 5u) << "four blocks and the head";
    // The same text as with the weights rounded at load.
    const Arguments prompt{"--prompt", "the", "--max-tokens", "20", "--temperature", "0", "--quiet"};
    Arguments stored{"generate", out}, rounded{"generate", trained_->out, "--weights", type};
    stored.insert(stored.end(), prompt.begin(), prompt.end());
    rounded.insert(rounded.end(), prompt.begin(), prompt.end());
    EXPECT_EQ(output_of(stored), output_of(rounded));
    output_of({"inspect", out, "--text", "the chart reads the deep line"});
  }
}

TEST_F(Quantize, says_that_nothing_was_measured_without_a_text) {
  const std::string text = output_of(quantize(out_));
  expect_in(text, "the loss was not measured; give held-out text (--path)");
  expect_in(text, "times smaller");
  expect_in(text, "quantized: " + out_);
  for (const auto& entry : fs::directory_iterator(dir_.path())) EXPECT_EQ(entry.path(), out_);
  EXPECT_EQ(json::parse(read_file(fs::path(out_) / "config.json"))["model_type"], "isobath");
}

TEST_F(Quantize, refuses_what_it_cannot_do) {
  refused(quantize(out_, {"--path", (dir_ / "nothing.txt").string()}), {"nothing.txt"});
  refused(quantize(trained_->dir.path().string()), {"is there already", "--out"});
  refused(quantize("/proc/model"), {"/proc"});
  refused(quantize(out_, {"--by", "causal"}), {"--by", "--path"});
  refused(quantize((dir_ / "..").string()), {"not the name of a new folder"});
  refused(quantize(out_, {"--context", "100000", "--path", trained_->text}), {"--context 100000"});
  refused({"quantize", (dir_ / "none").string(), "--type", "int8", "--out", out_}, {"no such file or folder"});
  refused({"quantize", trained_->out, "--type", "int4", "--out", out_}, {"int4"});
  expect_untouched();
}

TEST_F(Quantize, what_is_quantized_goes_no_further) {
  output_of(quantize(out_));
  const std::string more = (dir_ / "more").string();
  refused({"quantize", out_, "--type", "bf16", "--out", more}, {"quantized to int8", "it was made from"});
  refused({"train", "--from", out_, "--path", trained_->text, "--steps", "2", "--out", more},
          {"quantized to int8", "training needs", "it was made from"});
  refused({"train", "--resume", out_}, {"state.json is missing"});
  refused({"calibrate", out_, "--path", trained_->text, "--out", more}, {"quantized to int8"});
  refused({"upcycle", out_, "--out", more}, {"quantized to int8"});
  refused({"generate", out_, "--weights", "bf16", "--prompt", "a"}, {"stored in int8 and cannot be run in bf16"});
  EXPECT_FALSE(fs::exists(more));
}

TEST_F(Quantize, of_a_disk_that_is_too_small_says_so) {
  const fs::path disk = dir_ / "disk";
  fs::create_directory(disk);
  const TinyDisk mounted(disk, 16);
  if (!mounted.mounted()) GTEST_SKIP() << "only the superuser may mount a small disk";
  refused(quantize((disk / "small").string()), {"the model takes", "are free"});
  EXPECT_TRUE(fs::is_empty(disk));
}

TEST_F(Quantize, that_cannot_write_leaves_nothing) {
  const FileSizeLimit limit(20000);  // of every process that is started
  refused(quantize(out_), {"cannot write", "model.safetensors"}, 1);
  expect_untouched();
}

TEST_F(Quantize, folders_that_are_damaged_are_told) {
  output_of(quantize(out_));
  const fs::path file = fs::path(out_) / "model.safetensors";
  const std::string bytes = read_file(file);
  for (const char* command : {"generate", "inspect"}) {
    const Arguments arguments{command, out_, std::string(command) == "inspect" ? "--text" : "--prompt", "the"};
    fs::resize_file(file, bytes.size() - 100);
    refused(arguments, {file.string(), "cut short"});
    replace_file(file, bytes.substr(0, bytes.size() - 7) + '\x80' + bytes.substr(bytes.size() - 6));
    refused(arguments, {out_, "is not finite"}, 1);
    replace_file(file, bytes);
  }
}

}  // namespace
}  // namespace isobath
