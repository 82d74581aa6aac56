#include <clocale>
#include <cstdio>
#include <exception>
#include <new>

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
    "Exit codes: 0 done, or interrupted and saved; 1 failed during work; 2 wrong usage or input.";

}  // namespace

int main(int argc, char** argv) {
  using namespace isobath::cli;
  std::setlocale(LC_ALL, "C.UTF-8");
  CLI::App app{"Isobath trains and runs Mixture-of-Depths language models.", "isobath"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("isobath ") + ISOBATH_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    return "error: " + std::string(error.what()) + "; see '" + failed->get_display_name() + " --help'\n";
  });
  Run run;
  add_train(app, run);
  add_eval(app, run);
  add_generate(app, run);
  add_inspect(app, run);
  add_plan(app, run);
  add_tokenize(app, run);
  add_bench(app, run);
  add_demo(app, run);
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const isobath::Error& error) {
    clear_progress();
    std::fprintf(stderr, "error: %s\n", error.what());
    return int(error.fault());
  } catch (const std::bad_alloc&) {
    clear_progress();
    std::fprintf(stderr, "error: out of memory; lower batch, context or model size (see 'isobath plan')\n");
    return 1;
  } catch (const std::exception& error) {
    clear_progress();
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
