#include "base/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#include "base/error.h"

namespace isobath {
namespace {

// In the child, between fork and exec: system calls only.
[[noreturn]] void become(char* const* argv, int log, int nothing, pid_t parent) {
#ifdef __linux__
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  if (::getppid() != parent) ::_exit(127);  // it ended before the line above
  // A group of its own: the terminal's Ctrl-C goes to the parent, which passes it on once.
  ::setpgid(0, 0);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::execv(argv[0], argv);
  ::_exit(127);
}

}  // namespace

ChildProcess::ChildProcess(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& log) {
  std::vector<std::string> words{program.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (out < 0) fail_work("cannot write {}: {}", log.string(), std::strerror(errno));
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(argv.data(), out, nothing, parent);
  const int error = errno;
  ::close(out);
  if (nothing >= 0) ::close(nothing);
  if (pid_ < 0) fail_work("cannot start {}: {}", program.string(), std::strerror(error));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)), end_(other.end_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(end_, other.end_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0 || end_) return;
  ::kill(pid_, SIGKILL);
  collect(0);
}

std::optional<ProcessEnd> ChildProcess::collect(int flags) {
  if (end_ || pid_ <= 0) return end_;
  int status = 0;
  rusage usage{};
  pid_t got;
  do got = ::wait4(pid_, &status, flags, &usage);
  while (got < 0 && errno == EINTR);
  if (got != pid_) return end_;
  end_ = ProcessEnd{.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                    .most_bytes = int64_t(usage.ru_maxrss) * 1024};
  return end_;
}

std::optional<ProcessEnd> ChildProcess::poll() { return collect(WNOHANG); }

ProcessEnd ChildProcess::wait() {
  collect(0);
  return end_.value_or(ProcessEnd{});
}

void ChildProcess::ask_to_stop() {
  if (pid_ > 0 && !end_) ::kill(pid_, SIGTERM);
}

}  // namespace isobath
