#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>

namespace isobath::cli {
namespace {

Progress* current = nullptr;
volatile std::sig_atomic_t signals = 0;

// Only what a signal may interrupt anything with: write and _exit.
extern "C" void on_early_signal(int signal) { _exit(128 + signal); }

extern "C" void on_bus_error(int) {
  constexpr std::string_view kText =
      "\nerror: a mapped file was cut short while it was read (a token shard, a text or weights, by another program or "
      "a "
      "failing disk); put the file back; checkpoints that were written are whole\n";
  const size_t skip = current == nullptr ? 1 : 0;  // the new line ends what progress may have left
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, kText.data() + skip, kText.size() - skip);
  _exit(1);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

extern "C" void on_signal(int signal) {
  if (signals > 0 && signal == SIGINT) _exit(130);
  signals = 1;
}

}  // namespace

bool output_is_terminal() { return isatty(STDOUT_FILENO) == 1; }
bool error_is_terminal() { return isatty(STDERR_FILENO) == 1; }
bool input_is_terminal() { return isatty(STDIN_FILENO) == 1; }

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 120;
}

Progress::Progress(std::string what, double quiet_seconds)
    : what_(std::move(what)), quiet_seconds_(quiet_seconds), start_(Clock::now()), shown_(start_) {
  current = this;
}

Progress::~Progress() {
  clear();
  if (current == this) current = nullptr;
}

void Progress::update(int64_t done, int64_t of, const std::string& text, int64_t already) {
  const auto now = Clock::now();
  const bool terminal = error_is_terminal();
  const double since = std::chrono::duration<double>(now - shown_).count();
  if (!first_ && since < (terminal ? 0.1 : quiet_seconds_) && done < of) return;
  first_ = false;
  shown_ = now;
  const double spent = std::chrono::duration<double>(now - start_).count();
  const double rate = spent > 0 ? double(done - already) / spent : 0;
  const std::string eta = rate > 0 && done < of ? "ETA " + duration_text(double(of - done) / rate) + "  " : "";
  if (!terminal) {
    std::fprintf(stderr, "%s\n", fmt::format("{} {}/{}  {}{}", what_, done, of, eta, text).c_str());
    return;
  }
  constexpr int kBar = 12;
  const int full = of > 0 ? int(kBar * done / of) : 0;
  std::string line = fmt::format("{} {:>{}}/{} [{}{}] {}{}", what_, done, std::to_string(of).size(), of,
                                 std::string(size_t(full), '='), std::string(size_t(kBar - full), ' '), eta, text);
  const size_t columns = size_t(terminal_columns() - 1);
  if (line.size() > columns) line.resize(columns);
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  visible_ = true;
}

void Progress::clear() {
  if (visible_) std::fprintf(stderr, "\r\033[K");
  visible_ = false;
}

void clear_progress() {
  if (current != nullptr) current->clear();
}

void warn(const std::string& text) {
  clear_progress();
  std::fprintf(stderr, "warning: %s\n", text.c_str());
}

std::string without_controls(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    const uint8_t c = uint8_t(text[i]), next = i + 1 < text.size() ? uint8_t(text[i + 1]) : 0;
    const bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;
    out += c1 || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F ? '?' : text[i];
    i += c1;
  }
  return out;
}

void prepare_signals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) handle(signal, on_early_signal);
  handle(SIGBUS, on_bus_error);
}

void catch_signals() {
  handle(SIGINT, on_signal);
  handle(SIGTERM, on_signal);
  if (!is_ignored(SIGHUP)) handle(SIGHUP, on_signal);  // the terminal is gone; nohup says that it does not matter
}

bool interrupted() { return signals > 0; }

}  // namespace isobath::cli
