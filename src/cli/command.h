// One file per command. A command adds itself to the program, and sets what to run when it was named.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace isobath::cli {

using Run = std::function<int()>;  // the exit code

void add_train(CLI::App& app, Run& run);
void add_eval(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_plan(CLI::App& app, Run& run);
void add_tokenize(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_bench_generate(CLI::App& bench, Run& run);
void add_quantize(CLI::App& app, Run& run);
void add_upcycle(CLI::App& app, Run& run);
void add_demo(CLI::App& app, Run& run);
void add_sweep(CLI::App& app, Run& run);
void add_report(CLI::App& app, Run& run);

}  // namespace isobath::cli
