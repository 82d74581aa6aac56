// Wrong input: one line on standard error that names what was found, what was expected and the way out; exit code 2
// before work starts and 1 during it; and nothing is written or lost.
#include "wrong_input.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "support/full_disk.h"

namespace isobath {
namespace {

using namespace testing;

TEST_F(WrongInput, words_on_the_command_line) {
  const auto wrong = [](const Arguments& arguments, const Words& words) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    expect_failure(run(arguments), 2, words);
  };
  wrong({}, {"no command", "train", "isobath --help"});
  wrong({"trian"}, {"unknown command trian", "train", "isobath --help"});
  wrong({"--verbose"}, {"unknown flag --verbose", "isobath --help"});
  refused({"--stpes", "3"}, {"--stpes", "isobath train --help"});
  refused({"--steps"}, {"--steps", "isobath train --help"});
  refused({"--steps", "many"}, {"--steps", "many", "isobath train --help"});
  refused({"--batch", "1.5"}, {"--batch", "1.5"});
  refused({"--seed", "-1"}, {"--seed", "-1"});
  refused({"--gate", "relu"}, {"--gate", "relu", "raw", "sigmoid", "tanh"});
  refused({"--router-bias=maybe"}, {"--router-bias", "maybe", "true or false"});
  refused({"--steps", "9223372036854775808"}, {"--steps", "9223372036854775808", "64 bits"});
  refused({"--seed", "18446744073709551616"}, {"--seed", "18446744073709551616", "64 bits"});
  refused({"--capacity", "0.5,x"}, {"--capacity", "x"});
  refused({"--seed", ""}, {"--seed", "empty"});
  refused({"--causal", "predictor", "--predictor-width", "9223372036854775807"}, {"predictor_width"});
  refused({"--threads", "4096"}, {"train.threads is 4096"});
  refused({"--peak", "-1"}, {"--peak", "-1", "0 or more"});
  refused({"second.toml"}, {"second.toml"});
  wrong({"generate"}, {"model", "isobath generate --help"});
  wrong({"eval", "x"}, {"--path", "isobath eval --help"});
  wrong({"plan", work_.config, "--batch", "0"}, {"data.batch is 0"});
  wrong({"plan", work_.config, "--vocab-size", "-3"}, {"--vocab-size", "-3"});
  wrong({"bench", "trian"}, {"trian", "isobath bench --help"});
  wrong({"bench", "train", "--html", "page.html"}, {"--html requires --scan", "isobath bench train --help"});
  wrong({"bench", "train", "--scan", "--models", "dense"}, {"--models", "--scan"});
  wrong({"bench", "train", "--topology", "dense"}, {"topology = dense", "--models dense"});
  wrong({"bench", "train", "--scan", "--blocks", "1"}, {"--every", "--blocks"});
  wrong({"bench", "train", "--context", "99999999999999999999"}, {"--context"});
  wrong({"tokenize"}, {"--path", "--text"});
  wrong({"tokenize", "--tokenizer", "no/such", "--text", "x"}, {"no/such"});
  wrong({"tokenize", "--path", work_.text, "--out", "no/such/text.tokens"}, {"no/such: no such folder"});
  wrong({"generate", "x", "--max-tokens", "99999999999999999999"}, {"--max-tokens", "64 bits"});
}

TEST_F(WrongInput, config_files) {
  refused_config("[model]\nhiden_size = 3\n", {"wrong.toml:2", "unknown key model.hiden_size"});
  refused_config("[modle]\nhidden_size = 3\n", {"wrong.toml:2", "unknown key modle.hidden_size"});
  refused_config("[train]\nsteps = \"four\"\n", {"wrong.toml:2", "train.steps", "a whole number"});
  refused_config("[train]\n\nsteps = = 4\n", {"wrong.toml:3"});
  refused_config("[train\nsteps = 4\n", {"wrong.toml:1"});
  refused_config(
      "\x7f"
      "ELF\x01\x02",
      {"wrong.toml:1"});
  expect_failure(run({"train", "no/such.toml", "--out", work_.out}), 2, {"no/such.toml", "No such file"});
  expect_failure(run({"train", work_.dir.path().string(), "--out", work_.out}), 2, {"it is a folder, expected a file"});
}

TEST_F(WrongInput, texts) {
  refused({"--path", "no/such.txt"}, {"no/such.txt", "No such file"});
  refused({"--path", work_.dir.write("empty.txt", "").string()}, {"empty.txt"});
  refused({"--path", work_.dir.write("short.txt", "short").string()}, {"short.txt", "context + 1 = 25"});
  refused({"--valid-path", "no/such.txt"}, {"no/such.txt"});
  refused({"--tokenizer", "no/such"}, {"no/such"});
  expect_failure(run({"train", "--steps", "3", "--out", work_.out}), 2, {"data.path is missing", "--path"});
}

TEST_F(WrongInput, models) {
  refused({"--capacity", "0"}, {"routing.capacity is 0", "above 0 and at most 1"});
  refused({"--capacity", "1.5"}, {"routing.capacity is 1.5", "above 0 and at most 1"});
  refused({"--capacity", "-1"}, {"routing.capacity is -1", "above 0 and at most 1"});
  refused({"--capacity", "nan"}, {"routing.capacity is nan", "above 0 and at most 1"});
  refused({"--capacity", "0.5,0.25"}, {"routing.capacity has 2 values", "(4)"});
  refused({"--num-attention-heads", "3"}, {"num_attention_heads = 3", "hidden_size = 16"});
  refused({"--num-key-value-heads", "3"}, {"num_key_value_heads = 3", "num_attention_heads = 2"});
  refused({"--num-hidden-layers", "0"}, {"model.num_hidden_layers is 0"});
  refused({"--hidden-size", "-16"}, {"model.hidden_size is -16"});
  refused({"--head-dim", "5"}, {"head_dim is 5", "even"});
  refused({"--blocks", "4"}, {"routing.blocks", "4", "0 to 3"});
  refused({"--every", "5"}, {"every = 5", "4 blocks"});
  refused({"--train-only", "rooter"}, {"train.train_only", "rooter"});
  refused({"--from", "no/such"}, {"no/such"});
  refused({"--router", "random"}, {"router = random", "causal = none"});
  refused({"--max-position-embeddings", "8"}, {"context = 24", "max_position_embeddings = 8"});
}

TEST_F(WrongInput, settings_without_an_effect) {
  refused({"--causal", "none", "--router-offset"}, {"routing.router_offset", "set causal = bce"});
  refused({"--every", "3", "--blocks", "1,2"}, {"routing.every = 3", "routing.blocks"});
  refused({"--experts", "4", "--experts-causal", "none"}, {"experts.experts_causal", "experts_choice = expert"});
  refused({"--experts", "4", "--experts-choice", "expert", "--experts-per-token", "0"}, {"experts_per_token is 0"});
  refused({"--topology", "dense", "--capacity", "7"}, {"routing.capacity is 7"});
  expect_failure(run({"plan", work_.config, "--predictor-width", "8"}), 2,
                 {"predictor_width = 8", "causal = predictor"});
  expect_failure(run({"bench", "train", "--router-seed", "8"}), 2, {"router_seed = 8", "router = random"});
}

TEST_F(WrongInput, budgets_and_batches) {
  refused({"--steps", "4", "--tokens", "1000"}, {"found 2 budgets", "--steps, --tokens, --flops"});
  expect_failure(run({"train", "--path", work_.text, "--out", work_.out}), 2,
                 {"found 0 budgets", "--steps, --tokens, --flops"});
  refused({"--steps", "-4"}, {"budget is negative"});
  refused({"--steps", "0", "--flops", "10"}, {"10 FLOPs", "--flops"});
  refused({"--steps", "0", "--flops", "1e40"}, {"1e+40 FLOPs", "--flops"});
  refused({"--steps", "0", "--flops", "inf"}, {"train.flops is inf"});
  refused({"--capacity-scope", "document", "--flops", "1e30"}, {"1e+30 FLOPs", "--flops"});
  refused({"--batch", "0"}, {"data.batch is 0"});
  refused({"--micro-batch", "5"}, {"data.micro_batch is 5", "(4)"});
  refused({"--context", "0"}, {"data.context is 0"});
  refused({"--learning-rate", "nan"}, {"train.learning_rate is nan"});
  refused({"--hidden-size", "1000000", "--num-attention-heads", "10000"}, {"memory", "isobath plan"});
}

// ---- runs and models that exist

TEST_F(WrongModel, damaged_weights) {
  const std::string good = read_file(run_ / "latest/model.safetensors");
  damaged("model.safetensors", "", {"model.safetensors"});
  damaged("model.safetensors", good.substr(0, good.size() - 1), {"model.safetensors"});
  damaged("model.safetensors", good.substr(0, 100), {"model.safetensors"});
  damaged("model.safetensors", "x", {"model.safetensors"});
  damaged("model.safetensors", good + "x", {"model.safetensors"});
}

TEST_F(WrongModel, damaged_config) {
  const fs::path path = run_ / "step-00000004/config.json";
  const std::string good = read_file(path);
  for (const std::string& bytes : {std::string("garbage"), good.substr(0, good.size() / 2), std::string("[]")}) {
    replace_file(path, bytes);
    wrong({"generate", run_.string(), "--prompt", "the"}, {"config.json"});
    wrong({"eval", run_.string(), "--path", trained_->text}, {"config.json"});
  }
  nlohmann::json json = nlohmann::json::parse(good);
  json["hidden_size"] = 32;
  replace_file(path, json.dump());
  wrong({"generate", run_.string(), "--prompt", "the"}, {"model.", "weight", "32"});
  json["hidden_size"] = "wide";
  replace_file(path, json.dump());
  wrong({"generate", run_.string(), "--prompt", "the"}, {"config.json", "hidden_size", "wide"});
}

TEST_F(WrongModel, damaged_state) {
  const std::string good = read_file(run_ / "latest/state.json");
  damaged("state.json", "", {"state.json is missing", "nothing to resume"}, true);
  damaged("state.json", "{}", {"state.json", "another checkpoint"}, true);
  damaged("state.json", good.substr(0, good.size() / 2), {"state.json", "another checkpoint"}, true);
}

TEST_F(WrongModel, damaged_optimizer) {
  const std::string good = read_file(run_ / "latest/optimizer.safetensors");
  damaged("optimizer.safetensors", "", {"optimizer.safetensors"}, true);
  damaged("optimizer.safetensors", good.substr(0, good.size() / 2), {"optimizer.safetensors"}, true);
  Arguments wide = trained_->train({"--intermediate-size", "48"});
  wide[3] = (dir_ / "wide").string();
  output_of(wide);
  damaged("optimizer.safetensors", read_file(dir_ / "wide/latest/optimizer.safetensors"), {"optimizer.safetensors"},
          true);
}

TEST_F(WrongModel, resumed_with_something_else) {
  const std::string text = dir_.write("other.txt", synthetic_text(50)).string();
  wrong(resume({"--path", text}), {"state.json", "other text", "other.txt"});
  wrong(resume({"--steps", "3"}), {"state.json", "has done 4 steps", "--steps"});
  wrong(resume({"--tokens", "96"}), {"state.json", "has done 4 steps", "--tokens"});  // in place of the stored steps
  wrong(resume({"--gate", "tanh"}), {"routing.gate = \"raw\", not \"tanh\""});
  wrong(resume({"--hidden-size", "32"}), {"model.hidden_size = 16, not 32"});
  wrong(resume({"--out", (dir_ / "none").string()}), {"holds the checkpoints of another run", "--out"});
  wrong({"train", "--resume", dir_.path().string()}, {dir_.path().string()});
  wrong({"train", "--resume", "no/such"}, {"no/such"});
  EXPECT_EQ(latest_checkpoint(run_)->step, 4);
  EXPECT_EQ(latest_checkpoint(dir_ / "none")->step, 4);
}

TEST_F(WrongModel, a_new_run_in_the_folder_of_another) {
  const std::string before = read_file(run_ / "metrics.jsonl");
  wrong({"train", trained_->config, "--out", run_.string(), "--peak", "100"},
        {run_.string() + " holds the checkpoints of another run", "--resume", "--out"});
  EXPECT_EQ(read_file(run_ / "metrics.jsonl"), before);
  EXPECT_EQ(list_checkpoints(run_).size(), 2u);

  const fs::path model = dir_ / "a-model";
  fs::copy(latest_checkpoint(run_)->folder, model);
  wrong({"train", "--from", model.string(), "--path", trained_->text, "--steps", "2", "--context", "24", "--out",
         model.string(), "--peak", "100"},
        {model.string() + " is the folder of a model", "--out"});
  EXPECT_FALSE(latest_checkpoint(model));
}

TEST_F(WrongModel, folders_without_a_model) {
  fs::create_directory(dir_ / "empty");
  wrong({"generate", (dir_ / "empty").string(), "--prompt", "x"}, {(dir_ / "empty").string(), "config.json"});
  wrong({"generate", "no/such", "--prompt", "x"}, {"no/such"});
  wrong({"eval", (dir_ / "empty").string(), "--path", trained_->text}, {"config.json"});
}

TEST_F(WrongModel, generation) {
  const auto generate = [&](const Arguments& more, const Words& words) {
    Arguments all{"generate", run_.string(), "--prompt", "the"};
    all.insert(all.end(), more.begin(), more.end());
    wrong(all, words);
  };
  generate({"--prompt", std::string(100, 'x')}, {"prompt 1", "100", "24"});
  generate({"--temperature", "-1"}, {"temperature", "-1"});
  generate({"--temperature", "nan"}, {"temperature", "nan"});
  generate({"--top-k", "-1"}, {"top_k", "-1"});
  generate({"--top-p", "0"}, {"top_p", "0"});
  generate({"--top-p", "1.5"}, {"top_p", "1.5"});
  generate({"--min-p", "2"}, {"min_p", "2"});
  generate({"--max-tokens", "0"}, {"max_tokens", "0"});
  generate({"--depth", "nan"}, {"depth"});
  generate({"--stop", ""}, {"stop"});
  generate({"--speculate", "2", "--draft-depth", "0"}, {"--draft-depth", "0"});
  generate({"--speculate", "-1"}, {"--speculate", "-1"});
  generate({"--speculate", "9223372036854775807"}, {"--speculate", "64"});
  generate({"--seed", "-1"}, {"--seed", "-1"});
  generate({"--threads", "-1"}, {"--threads", "-1"});
  generate({"--prompt-file", "no/such.txt"}, {"no/such.txt"});
  wrong({"generate", (dir_ / "none").string(), "--prompt", "x"}, {"causal = none"});
}

TEST_F(WrongModel, evaluation) {
  const auto eval = [&](const std::string& model, const Arguments& more, const Words& words) {
    Arguments all{"eval", (dir_ / model).string(), "--path", trained_->text};
    all.insert(all.end(), more.begin(), more.end());
    wrong(all, words);
  };
  eval("run", {"--context", "25"}, {"25", "24"});
  eval("run", {"--context", "-1"}, {"--context", "-1"});
  eval("run", {"--batch", "0"}, {"--batch", "0"});
  eval("run", {"--by", "luck"}, {"--by", "luck", "topk", "causal"});
  eval("run", {"--windows", "-2"}, {"--windows", "-2"});
  eval("run", {"--depth", "nan"}, {"depth"});
  eval("none", {"--by", "causal"}, {"causal = none", "--by topk"});
}

TEST_F(WrongModel, inspection) {
  const auto inspect = [&](const std::string& model, const Arguments& more, const Words& words) {
    Arguments all{"inspect", (dir_ / model).string()};
    all.insert(all.end(), more.begin(), more.end());
    wrong(all, words);
  };
  inspect("run", {"--text", ""}, {"the text is empty", "--text", "--file"});
  inspect("run", {}, {"the text is empty"});  // standard input is /dev/null
  inspect("run", {"--file", "no/such.txt"}, {"no/such.txt"});
  inspect("run", {"--text", "a", "--by", "luck"}, {"--by", "luck"});
  inspect("run", {"--text", "a", "--by", "topk", "--depth", "1"}, {"--depth", "top-k"});
  inspect("run", {"--text", "a", "--html", "no/such/page.html"}, {"no/such"});
  inspect("none", {"--text", "a", "--by", "causal"}, {"causal = none"});
  inspect("empty", {"--text", "a"}, {"empty"});
}

TEST_F(WrongModel, demonstration) {
  const auto demo = [&](const Arguments& more, const Words& words) {
    Arguments all{"demo", "--out", (dir_ / "demo").string()};
    all.insert(all.end(), more.begin(), more.end());
    wrong(all, words);
    EXPECT_FALSE(fs::exists(dir_ / "demo"));
  };
  demo({}, {"--data", "isobath demo --help"});
  demo({"--data", "no/such.txt"}, {"no/such.txt"});
  demo({"--data", dir_.write("short.txt", "a few words").string()}, {"short.txt"});
  demo({"--data", trained_->text, "--seconds", "0"}, {"--seconds", "0"});
  demo({"--data", trained_->text, "--threads", "-1"}, {"--threads", "-1"});
}

// ---- disks

TEST_F(WrongModel, a_folder_that_may_only_be_read) {
  const fs::path disk = dir_ / "disk";
  fs::create_directory(disk);
  TinyDisk mounted(disk, 64);
  if (!mounted.mounted()) GTEST_SKIP() << "only the superuser may mount a read-only disk";
  ASSERT_TRUE(mounted.make_read_only());
  wrong({"train", trained_->config, "--out", disk.string(), "--peak", "100", "--quiet"},
        {disk.string(), "Read-only", "name another one"});
  wrong({"train", trained_->config, "--out", (disk / "run").string(), "--peak", "100", "--quiet"},
        {(disk / "run").string(), "Read-only"});
  wrong({"tokenize", "--path", trained_->text, "--out", (disk / "text.tokens").string()},
        {disk.string(), "Read-only", "name another one"});
}

TEST_F(WrongModel, a_full_disk) {
  const fs::path disk = dir_ / "disk";
  fs::create_directory(disk);
  const TinyDisk mounted(disk, 1200);
  if (!mounted.mounted()) GTEST_SKIP() << "only the superuser may mount a small disk";
  const std::string out = (disk / "run").string();
  wrong(
      {"train", trained_->config, "--steps", "50", "--save-every", "1", "--keep", "50", "--out", out, "--peak", "100"},
      {"No space left on device", "the last good checkpoint is " + out + "/step-"}, 1);
  const int64_t step = latest_checkpoint(out)->step;
  EXPECT_GE(step, 1);
  wrong({"train", "--resume", out, "--peak", "100"}, {"No space left on device"}, 1);  // still full
  EXPECT_EQ(latest_checkpoint(out)->step, step);
}

// The run goes on without its reader, and saves; what could not be printed is told at the end.
TEST_F(WrongModel, standard_output_that_nobody_reads) {
  const fs::path pipe = dir_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  Arguments arguments = trained_->train({"--eval-every", "1"});
  arguments[3] = (dir_ / "unread").string();
  Program program(arguments, pipe.string());
  ::close(reader);
  const Ended ended = program.wait();
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(latest_checkpoint(dir_ / "unread")->step, 4);
}

TEST_F(WrongModel, diverged_weights_are_not_saved) {
  Arguments arguments = trained_->train({"--learning-rate", "1e38"});
  arguments[3] = (dir_ / "diverged").string();
  expect_failure(run(arguments), 1, {"diverged", "lower learning rate", "no checkpoint was written yet"});
}

TEST_F(WrongModel, a_demo_in_the_folder_of_another_run) {
  fs::rename(run_, dir_ / "mod");
  fs::create_directories(dir_ / "demo");
  fs::rename(dir_ / "mod", dir_ / "demo/dense");
  const std::string text = dir_.write("long.txt", synthetic_text(800)).string();
  wrong({"demo", "--data", text, "--out", (dir_ / "demo").string(), "--seconds", "1", "--short"},
        {"holds a run that the demo did not make", "--out"});
  EXPECT_EQ(latest_checkpoint(dir_ / "demo/dense")->step, 4);
}

TEST_F(WrongModel, standard_output_that_is_full) {
  for (const Arguments& arguments :
       {Arguments{"plan", trained_->config}, Arguments{"--help"}, Arguments{"train", "--help"}})
    expect_failure(Program(arguments, "/dev/full").wait(), 1, {"standard output", "No space left on device"});
}

}  // namespace
}  // namespace isobath
