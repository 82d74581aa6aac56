// Another process of this machine, started and watched.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace isobath {

// How a process ended.
struct ProcessEnd {
  int code = 0;            // of its exit
  int signal = 0;          // that ended it, or 0
  int64_t most_bytes = 0;  // of memory that it held at once
};

class ChildProcess {
 public:
  // Runs a program with its arguments; what it writes to standard output and error goes to the end of `log`, its input
  // is empty. It is killed when the starting thread of this process ends, however that ends. Throws Error{kWork} when
  // no process can be made; a program that cannot be run ends with code 127.
  ChildProcess(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& log);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // killed and waited for, if it still runs

  std::optional<ProcessEnd> poll();  // none: it runs
  ProcessEnd wait();
  void ask_to_stop();  // SIGTERM
  pid_t id() const { return pid_; }

 private:
  std::optional<ProcessEnd> collect(int flags);
  pid_t pid_ = 0;
  std::optional<ProcessEnd> end_;
};

}  // namespace isobath
