// The one exception type of the library. The library throws and never prints; only main prints.
//
//   require(S <= N, "route_topk: {} rows selected of {}; lower the capacity", S, N);
//
// A message names the operation, what was found, what was expected and the way out, on one line.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace isobath {

// What went wrong decides the exit code of the program: 2 for usage or input that was found wrong before work
// started, 1 for a failure during work (full disk, non-finite loss).
enum class Fault { kInput = 2, kWork = 1 };

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Fault fault = Fault::kInput)
      : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_work(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), Fault::kWork);
}

template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) fail(format, std::forward<Args>(args)...);
}

}  // namespace isobath
