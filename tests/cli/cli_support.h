// The built program, run as people run it: a process with arguments, two streams and an exit code.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "checkpoint/checkpoints.h"
#include "train/train_support.h"

namespace isobath::testing {

using Arguments = std::vector<std::string>;

struct Ended {
  int code = -1;   // of an exit
  int signal = 0;  // or of a death
  std::string out, error;
};

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Program {
 public:
  // `out`: where standard output goes, instead of a file that is read at the end.
  explicit Program(const Arguments& arguments, const std::string& out = "")
      : out_(out.empty() ? dir_ / "out" : fs::path(out)) {
    std::vector<std::string> words{ISOBATH_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    dir_.write("out", "");  // there to be read even if the program is killed before its first instruction
    dir_.write("error", "");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    open_as(STDIN_FILENO, "/dev/null", O_RDONLY);
    open_as(STDOUT_FILENO, out_, O_WRONLY | O_CREAT);
    open_as(STDERR_FILENO, dir_ / "error", O_WRONLY | O_CREAT);
    ::execv(argv[0], argv.data());
    ::_exit(126);
  }
  Program(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      signal(SIGKILL);
      wait();
    }
  }

  // Nothing where it has ended: process 0 is the whole group of the test.
  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }
  pid_t id() const { return pid_; }
  bool running() {
    if (pid_ > 0 && ::waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = 0;
    return pid_ > 0;
  }
  Ended wait() {
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = 0;
    Ended ended;
    if (WIFEXITED(status_)) ended.code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) ended.signal = WTERMSIG(status_);
    if (out_ == dir_ / "out") ended.out = read_file(out_);
    ended.error = read_file(dir_ / "error");
    return ended;
  }

 private:
  static void open_as(int fd, const fs::path& path, int flags) { ::dup2(::open(path.c_str(), flags, 0666), fd); }
  const TempDir dir_;
  fs::path out_;
  pid_t pid_ = 0;
  int status_ = 0;
};

inline Ended run(const Arguments& arguments) { return Program(arguments).wait(); }

// Of a run that must succeed; what it said is shown when it did not.
inline std::string output_of(const Arguments& arguments) {
  const Ended ended = run(arguments);
  EXPECT_EQ(ended.code, 0) << "signal " << ended.signal << "\n" << ended.error;
  return ended.out;
}

// A text and a config to train on it; four blocks, of which 1 and 3 are routed. Nothing measures the machine.
struct Workplace {
  TempDir dir;
  std::string text = dir.write("text.txt", synthetic_text(120)).string();
  std::string config = dir.write("run.toml",
                                 "[model]\nhidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 4\n"
                                 "[routing]\ntopology = \"joint\"\ncapacity = 0.25\n"
                                 "[data]\npath = \"" +
                                     text +
                                     "\"\ncontext = 24\nbatch = 4\n"
                                     "[train]\nsteps = 4\nthreads = 1\n")
                           .string();
  std::string out = (dir / "run").string();

  Arguments train(const Arguments& more = {}) const {
    Arguments all{"train", config, "--out", out, "--peak", "100", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Arguments resume(const Arguments& more = {}) const {
    Arguments all{"train", "--resume", out, "--peak", "100", "--quiet"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

inline std::vector<nlohmann::json> metrics_of(const fs::path& out) {
  std::vector<nlohmann::json> records;
  for (const std::string& line : lines_of(read_file(out / "metrics.jsonl"))) {
    records.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_TRUE(records.back().is_object()) << line;
  }
  return records;
}

}  // namespace isobath::testing
