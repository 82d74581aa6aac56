// Input that is made to break the program: nested without end, read without end, numbers that are none.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "wrong_input.h"

namespace isobath {
namespace {

using namespace testing;

constexpr size_t kDeep = 200'000;

std::string times(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; i++) all += text;
  return all;
}
std::string nested(const std::string& before = "") {
  return before + std::string(kDeep, '[') + std::string(kDeep, ']') + (before.empty() ? "" : "}");
}

TEST_F(WrongInput, configs_that_nest_without_end) {
  const std::string key = "a" + times(".a", kDeep);
  for (const std::string& toml : {key + " = 1\n", "[" + key + "]\nx = 1\n", "[[" + key + "]]\nx = 1\n",
                                  "x = {" + key + " = 1}\n", "[train]\nsteps = " + nested() + "\n"}) {
    SCOPED_TRACE(toml.substr(0, 20));
    const std::string config = work_.dir.write("deep.toml", toml).string();
    expect_failure(run({"plan", config}), 2, {"deep.toml"});
    expect_failure(run({"train", config, "--out", work_.out}), 2, {"deep.toml"});
  }
}

TEST_F(WrongInput, texts_and_tokenizers_that_nest_without_end) {
  const std::string lines = work_.dir.write("deep.jsonl", nested("{\"text\":") + "\n").string();
  refused({"--path", lines}, {"deep.jsonl: line 1", "nests deeper than 128"});
  const std::string tokenizer = work_.dir.write("deep/tokenizer.json", nested("{\"model\":")).string();
  refused({"--tokenizer", tokenizer}, {"tokenizer.json", "nests deeper than 128"});
}

TEST_F(WrongModel, files_of_a_model_that_nest_without_end) {
  const fs::path folder = run_ / "step-00000004";
  const std::string config = read_file(folder / "config.json"), state = read_file(folder / "state.json");
  const auto with = [](std::string json) {
    return json.replace(json.find('{'), 1, nested("{\"deep\":").erase(2 * kDeep + 8) + ",");
  };
  replace_file(folder / "config.json", with(config));
  wrong({"generate", run_.string(), "--prompt", "the"}, {"config.json", "nests deeper than 128"});
  wrong({"eval", run_.string(), "--path", trained_->text}, {"config.json", "nests deeper than 128"});
  replace_file(folder / "config.json", config);
  replace_file(folder / "state.json", with(state));
  wrong(resume_, {"state.json", "nests deeper than 128"});
  replace_file(folder / "state.json", state);
  replace_file(folder / "tokenizer_config.json", with(config));
  output_of({"generate", run_.string(), "--prompt", "the", "--max-tokens", "2"});  // bytes: nobody reads it
}

TEST_F(WrongInput, files_that_never_end) {
  for (const char* device : {"/dev/zero", "/dev/random"}) {
    SCOPED_TRACE(device);
    expect_failure(run({"plan", device}), 2, {device, "a device or pipe"});
    expect_failure(run({"train", device, "--out", work_.out}), 2, {device, "a device or pipe"});
    refused({"--tokenizer", device}, {device, "a device or pipe"});
    refused({"--path", device}, {device, "a device or pipe"});
  }
  const fs::path pipe = work_.dir / "pipe.toml";  // that nobody writes into
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_failure(run({"plan", pipe.string()}), 2, {"pipe.toml", "a device or pipe"});
  const fs::path sparse = work_.dir.write("sparse.toml", "");
  fs::resize_file(sparse, uint64_t(1) << 40);
  expect_failure(run({"plan", sparse.string()}), 2, {"sparse.toml", "longer than 16 MiB"});
}

TEST_F(WrongModel, prompts_that_never_end) {
  for (const Arguments& command : {Arguments{"generate", run_.string(), "--max-tokens", "2", "--prompt-file"},
                                   Arguments{"inspect", run_.string(), "--file"}}) {
    const auto with = [&](const fs::path& file) {
      Arguments all = command;
      all.push_back(file.string());
      return all;
    };
    wrong(with("/dev/zero"), {"/dev/zero", "a device or pipe"});
    const fs::path sparse = dir_.write("sparse.txt", "");
    fs::resize_file(sparse, uint64_t(1) << 40);
    wrong(with(sparse), {"sparse.txt", "longer than 64 MiB"});
    // a pipe is a prompt, as <(command) makes one
    const fs::path pipe = dir_ / "pipe";
    ::mkfifo(pipe.c_str(), 0600);
    std::thread writer([&] { std::ofstream(pipe) << "the chart"; });
    const Ended ended = run(with(pipe));
    writer.join();
    EXPECT_EQ(ended.code, 0) << ended.error;
  }
}

TEST_F(WrongInput, numbers_that_are_none) {
  const auto wrong = [&](const Arguments& more, const Words& words) {
    Arguments all{"plan", work_.config};
    all.insert(all.end(), more.begin(), more.end());
    SCOPED_TRACE(::testing::PrintToString(more));
    expect_failure(run(all), 2, words);
  };
  wrong({"--flops", "nan"}, {"train.flops is nan"});
  wrong({"--flops", "-1"}, {"budget is negative"});
  wrong({"--steps", "-4"}, {"budget is negative"});
  wrong({"--steps", "4", "--tokens", "1000"}, {"found 2 budgets"});
  wrong({"--steps", "9223372036854775807"}, {"1e+15 sequences"});
  wrong({"--threads", "-1"}, {"threads"});
  wrong({"--learning-rate", "-1"}, {"train.learning_rate is -1"});
  wrong({"--learning-rate", "nan"}, {"train.learning_rate is nan"});
  wrong({"--vocab-size", "0"}, {"--vocab-size", "0, expected more than 0"});
  refused({"--peak", "nan"}, {"--peak", "nan"});
  refused({"--peak", "inf"}, {"--peak", "inf"});
  for (const Arguments& arguments : {Arguments{"demo", "--data", work_.text, "--seed", "-1"},
                                     Arguments{"demo", "--data", work_.text, "--seconds", "nan"},
                                     Arguments{"bench", "train", "--scan", "--seconds", "0"}}) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    const Ended ended = run(arguments);
    expect_failure(ended, 2, {arguments[arguments.size() - 2]});
    EXPECT_LT(ended.error.size(), 200u) << ended.error;
  }
}

TEST_F(WrongModel, numbers_that_are_none) {
  wrong({"inspect", run_.string(), "--text", "a", "--depth", "nan"}, {"--depth", "nan"});
  const Ended ended = run({"eval", run_.string(), "--path", trained_->text, "--max-documents", "-1"});
  expect_failure(ended, 2, {"--max-documents", "-1"});
  expect_failure(run({"eval", run_.string(), "--path", trained_->text, "--max-documents", "2"}), 2,
                 {"--max-documents", "document scopes"});
  EXPECT_LT(ended.error.size(), 200u) << ended.error;
}

TEST_F(WrongModel, a_demo_too_short_for_a_sequence) {
  const std::string text = dir_.write("long.txt", synthetic_text(800)).string();
  const Ended ended = run({"demo", "--data", text, "--out", (dir_ / "demo").string(), "--seconds", "1e-7"});
  expect_failure(ended, 2, {"--seconds"});
  EXPECT_EQ(ended.error.find("--flops"), std::string::npos) << ended.error;
}

#if defined(_OPENMP) && !defined(__SANITIZE_ADDRESS__)  // a sanitizer takes all addresses

class WithLittleMemory : public WrongInput {
 protected:
  // The exit code (128 + signal as a shell says it), and the last line of standard error.
  std::pair<int, std::string> run_within(int64_t kilobytes, const Arguments& arguments) const {
    const std::string error = work_.dir.write("error", "").string();
    std::string command = fmt::format("ulimit -c 0; ulimit -v {}; {}", kilobytes, ISOBATH_PROGRAM);
    for (const std::string& word : arguments) command += " " + word;
    const int status = std::system((command + " > /dev/null 2> " + error).c_str());
    const std::vector<std::string> lines = lines_of(read_file(error));
    return {WEXITSTATUS(status), lines.empty() ? "" : lines.back()};
  }
};

TEST_F(WithLittleMemory, threads_that_cannot_be_started) {
  const auto [code, line] = run_within(2'000'000, {"eval", "no/such", "--path", work_.text, "--threads", "1000"});
  EXPECT_EQ(code, 2);
  EXPECT_TRUE(line.starts_with("error: cannot start 1000 threads")) << line;
  expect_in(line, "lower --threads");
}

// Also where it runs out in a thread of a parallel region, which measures the machine.
TEST_F(WithLittleMemory, memory_that_runs_out) {
  for (const int64_t kilobytes : {60'000, 80'000, 100'000, 120'000, 150'000}) {
    SCOPED_TRACE(kilobytes);
    const auto [code, line] = run_within(kilobytes, {"train", work_.config, "--threads", "2", "--out", work_.out});
    EXPECT_TRUE(code == 1 || code == 2) << code;
    EXPECT_TRUE(line.starts_with("error: ")) << line;
  }
}

#endif

TEST_F(WrongInput, names_of_shards_that_are_folders) {
  for (const char* out : {"/", ".", "..", "no/such/"}) {
    SCOPED_TRACE(out);
    expect_failure(run({"tokenize", "--path", work_.text, "--out", out}), 2, {"--out", "is a folder"});
  }
  expect_failure(run({"tokenize", "--path", work_.text, "--text", "x"}), 2, {"--path", "--text"});
  const fs::path out = work_.dir / "books.v1";
  output_of({"tokenize", "--path", work_.text, "--out", out.string()});
  EXPECT_TRUE(fs::exists(out.string() + ".train.tokens"));
  output_of({"tokenize", "--path", work_.text, "--out", (work_.dir / "more.tokens").string()});
  EXPECT_TRUE(fs::exists(work_.dir / "more.valid.tokens"));
}

}  // namespace
}  // namespace isobath
