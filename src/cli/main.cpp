#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath plan configs/tiny.toml                     what a model costs, before it is trained\n"
    "  isobath train configs/tiny.toml --path text.txt    train it\n"
    "  isobath generate runs/tiny --prompt 'In the'       write with it\n"
    "  isobath inspect runs/tiny --text 'In the beginning'  see which token went how deep\n\n"
    "Exit codes: 0 done, or interrupted and saved; 1 failed during work; 2 wrong usage or input; 130 interrupted "
    "where\n"
    "there was nothing to save.";

// One line, whatever an error text holds: programs read it too.
int report(std::string message, int exit_code) {
  isobath::cli::clear_progress();
  std::replace_if(
      message.begin(), message.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  constexpr size_t kEnd = 600;  // of a line that quotes a wrong file whole, both ends say enough
  if (message.size() > 2 * kEnd) message.replace(kEnd, message.size() - 2 * kEnd, " ... ");
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return exit_code;
}

// Without another byte of memory.
int report_at_once(std::string_view line) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  return 1;
}

constexpr std::string_view kOutOfMemory =
    "error: out of memory; lower batch, context or model size (see 'isobath plan')\n";
constexpr std::string_view kFailedThread =
    "error: a thread failed, most likely for want of memory; lower batch, context or model size (see 'isobath plan')\n";

// An exception cannot leave a thread of a parallel region: it ends up here, and in the calling thread nameless. As in
// main, but other threads may be at work, so nothing is torn down. Of several that fail at once, one speaks.
[[noreturn]] void on_terminate() {
  static std::atomic_flag spoken;
  while (spoken.test_and_set()) ::pause();
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
    report_at_once(kFailedThread);
  } catch (const std::bad_alloc&) {
    report_at_once(kOutOfMemory);
  } catch (const std::exception& error) {
    report(error.what(), 1);
  } catch (...) {
    report_at_once(kFailedThread);
  }
  ::_exit(1);
}

// Output that did not arrive is a failure: a report on a full disk is not a report.
int checked_output(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return report("cannot write to standard output: " + std::string(std::strerror(errno)), 1);
}

int parse_failure(const CLI::App& app, const CLI::ParseError& error, const std::string& first) {
  if (error.get_exit_code() == 0) return checked_output(app.exit(error));  // --help, --version
  std::string named;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands()[0];
    named += " " + at->get_name();
  }
  if (!named.empty()) return report(fmt::format("{}; see 'isobath{} --help'", error.what(), named), 2);
  std::string commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  const std::string found = first.empty()            ? "no command"
                            : first.starts_with('-') ? "unknown flag " + first
                                                     : "unknown command " + first;
  return report(fmt::format("{}, expected one of {}; see 'isobath --help'", found, commands), 2);
}

// The words behind the program's name, last first, as CLI11 wants them: 'help train' is 'train --help', and an option
// may be spelt as in the files, --hidden_size.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 2 && words[0] == "help") words = {words[1], "--help"};
  if (words == std::vector<std::string>{"help"}) words = {"--help"};
  for (std::string& word : words)
    if (word.starts_with("--")) std::replace(word.begin(), std::find(word.begin(), word.end(), '='), '_', '-');
  std::reverse(words.begin(), words.end());
  return words;
}

template <class Integer>
std::string fits(const std::string& word) {
  Integer value;
  const bool over = std::from_chars(word.data(), word.data() + word.size(), value).ec == std::errc::result_out_of_range;
  return over ? word + " does not fit in 64 bits" : "";
}

// CLI11 cuts whole numbers that do not fit down to the largest that does, and takes an empty word, which an unset
// variable of a shell leaves, for 0; both without a word.
void refuse_wrong_numbers(CLI::App& app) {
  const auto given = [](const std::string& word) { return word.empty() ? "it is empty, expected a number" : ""; };
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    refuse_wrong_numbers(*command);
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      if (type.starts_with("INT")) option->check(fits<int64_t>);
      if (type.starts_with("UINT")) option->check(fits<uint64_t>);
      if (type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT")) option->check(given);
    }
  }
}

// Threads of GNU's OpenMP that wait at a barrier spin for milliseconds before they sleep. Where another program has
// taken a core, each of a step's barriers waits that long for a thread that is not running, and steps become ten times
// slower. Spinning for some 40 microseconds costs nothing on a machine of one's own. The runtime reads its settings
// before main() begins, so the program is started again; where that cannot be done all works as before, only slower.
void let_waiting_threads_sleep(char** argv) {
#ifdef _OPENMP
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  ::setenv("GOMP_SPINCOUNT", "1000", 1);
  ::execv("/proc/self/exe", argv);
#endif
}

// Whatever the program is started with: descriptors 0 to 2 are open, so that no file of a run takes their place; a
// reader that goes away and a file that may not grow are errors that are told, not deaths that lose a run.
void prepare_process() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0 && fd <= 2;) fd = ::open("/dev/null", O_RDWR);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  isobath::cli::prepare_signals();
  std::set_terminate(on_terminate);
}

}  // namespace

int main(int argc, char** argv) {
  prepare_process();
  let_waiting_threads_sleep(argv);
  using namespace isobath::cli;
  std::setlocale(LC_ALL, "C.UTF-8");
  CLI::App app{"Isobath trains and runs Mixture-of-Depths language models.", "isobath"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("isobath ") + ISOBATH_VERSION);
  app.require_subcommand(1);
  Run run;
  add_train(app, run);
  add_eval(app, run);
  add_calibrate(app, run);
  add_generate(app, run);
  add_inspect(app, run);
  add_upcycle(app, run);
  add_quantize(app, run);
  add_plan(app, run);
  add_tokenize(app, run);
  add_bench(app, run);
  add_demo(app, run);
  add_sweep(app, run);
  add_report(app, run);
  refuse_wrong_numbers(app);
  try {
    app.parse(words_of(argc, argv));
    return checked_output(run());
  } catch (const CLI::ParseError& error) {
    return parse_failure(app, error, argc > 1 ? argv[1] : "");
  } catch (const isobath::Error& error) {
    return report(error.what(), int(error.fault()));
  } catch (const std::bad_alloc&) {
    return report_at_once(kOutOfMemory);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}
