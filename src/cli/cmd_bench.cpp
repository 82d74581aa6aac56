#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/op_profile.h"
#include "cli/pair_bench.h"
#include "cli/step_scan.h"
#include "cli/table_text.h"
#include "cli/terminal.h"
#include "model/config_unused.h"

namespace isobath::cli {
namespace {

struct Arguments {
  OptionFlags flags;
  int64_t context = 1024, batch = 4, vocab_size = 257, pairs = 0;
  std::string models = "both", recompute = "none", storage = "f32", pack = "step", html;
  bool json = false, check = false, profile = false, scan = false, beside_plain = false;
  double seconds = 600;
};

constexpr int64_t kPairs = 5, kScanPairs = 3;

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath bench train                     training steps, dense and Mixture-of-Depths, beside the machine's peak\n"
    "  isobath bench train --profile           and where their time goes\n"
    "  isobath bench generate                  writing text, against the speed of memory";

constexpr const char* kTrainFooter =
    "Examples:\n"
    "  isobath bench train                                width 384, 6 blocks, 4 x 1024 tokens\n"
    "  isobath bench train --hidden-size 768 --num-hidden-layers 12 --num-attention-heads 12 --batch 2 --profile\n"
    "  isobath bench train --storage bf16 --beside-plain      what saving memory costs\n"
    "  isobath bench train --scan --html scan.html        against context, width, depth, batch and capacity\n"
    "Dense and Mixture-of-Depths models take turns in one run, so that a busy machine slows both: two steps each, of\n"
    "which the second is timed, as a step of another model before it is not what training does. Ratios are medians of\n"
    "the pairs. Shares are of the fp32 FMA peak measured in the same run: causal half of attention, no recompute.";

RunConfig defaults() {
  RunConfig run;
  run.model.hidden_size = 384;
  run.model.num_hidden_layers = 6;
  run.model.num_attention_heads = 6;
  return run;
}

BenchSetup setup_of(const Arguments& a) {
  RunConfig run = defaults();
  a.flags.apply(run);
  check_unused(run.model);
  run.model.vocab_size = a.vocab_size;
  if (a.models == "dense") run.model = dense_twin(run.model);
  resolve(run.model, a.context);
  BenchSetup setup{.model = run.model, .batch = a.batch, .context = a.context};
  setup.memory = {.recompute = *parse_name<Recompute>(a.recompute),
                  .storage = *parse_name<Storage>(a.storage),
                  .packing = *parse_name<Packing>(a.pack)};
  setup.beside_plain = a.beside_plain;
  setup.dense = a.models != "mod";
  setup.mod = a.models != "dense";
  require(!setup.mod || run.model.routed_blocks() > 0,
          "bench compares a routed model with its dense twin, and topology = dense has no routed block; "
          "give --models dense, or another topology");
  return setup;
}

void print_json(const nlohmann::json& json) { std::printf("%s\n", json.dump(2).c_str()); }

int run_scan(const Arguments& a) {
  if (!a.html.empty()) require_writable(parent_folder(a.html));
  const ScanResult result = scan_steps(setup_of(a), a.pairs > 0 ? a.pairs : kScanPairs, a.seconds);
  const StepScan scan = page_of(result);
  if (!a.html.empty()) replace_file(a.html, scan_page(scan));
  if (a.json) {
    print_json(to_json(result));
    return 0;
  }
  std::printf("%s\n", scan.subtitle.c_str());
  for (const ScanAxis& axis : scan.axes)
    std::printf("\n%s: %s\n%s", axis.name.c_str(), axis.note.c_str(), table_text(scan_table(axis)).c_str());
  return 0;
}

// Text and JSON are made together, so that they say the same.
struct Report {
  std::string text;
  nlohmann::json json;
};

void add_profile(Report& report, PairBench& bench, int64_t steps) {
  const MachinePeak& peak = bench.times().peak;
  const auto add = [&](const char* name, const char* key, StepBench* model) {
    if (model == nullptr) return;
    const StepProfile profile = profile_step(*model, steps);
    report.json["profile"][key] = to_json(profile, peak);
    report.text += fmt::format("\n{}, the quickest of {} steps\n{}", name, steps, text_of(profile, peak));
  };
  add("dense", "dense", bench.dense());
  add("MoD", "mod", bench.mod());
}

int run_train(const Arguments& a) {
  if (a.scan) return run_scan(a);
  const int64_t pairs = a.pairs > 0 ? a.pairs : kPairs;
  PairBench bench(setup_of(a));
  Progress progress(a.models == "both" ? "pair" : "step");
  for (int64_t pair = 0; pair < pairs; pair++) {
    bench.pair();
    progress.update(pair + 1, pairs, "");
  }
  progress.clear();
  const PairTimes& times = bench.times();
  Report report{.text = text_of(times), .json = to_json(times)};
  report.json["machine"] = to_json(times.peak);
  if (a.profile) add_profile(report, bench, pairs);
  add_goals(report.text, report.json, goals_of(times));
  if (a.json)
    print_json(report.json);
  else
    std::printf("%s", report.text.c_str());
  return a.check ? check_code(report.json) : 0;
}

// What is measured: model, batch, how often.
void add_sizes(CLI::App& command, Arguments& a) {
  const CLI::Range count(int64_t{1}, int64_t{1} << 20);
  a.flags.add(command, {"model", "routing", "experts"}, defaults());
  command.add_option("--context", a.context, "tokens per sequence")->check(count)->capture_default_str();
  command.add_option("--batch", a.batch, "sequences per step")->check(count)->capture_default_str();
  command.add_option("--vocab-size", a.vocab_size, "entries of the vocabulary")->check(count)->capture_default_str();
  command.add_option("--recompute", a.recompute, "as in train: what blocks run again instead of keeping it")
      ->check(CLI::IsMember(std::vector<std::string>(kNames<Recompute>.begin(), kNames<Recompute>.end())))
      ->capture_default_str();
  command.add_option("--storage", a.storage, "as in train: the format of what is kept for the backward pass")
      ->check(CLI::IsMember(std::vector<std::string>(kNames<Storage>.begin(), kNames<Storage>.end())))
      ->capture_default_str();
  command.add_option("--pack", a.pack, "as in train: when weights are packed for their products")
      ->check(CLI::IsMember(std::vector<std::string>(kNames<Packing>.begin(), kNames<Packing>.end())))
      ->capture_default_str();
  command.add_option("--pairs", a.pairs, "steps of each (5; with --scan at most 3 at each point)")->check(count);
  add_threads(command);
}

void add_bench_train(CLI::App& bench, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("train", "Training steps, dense and Mixture-of-Depths, in one run");
  command->footer(kTrainFooter);
  add_sizes(*command, *a);
  CLI::Option* plain =
      command->add_flag("--beside-plain", a->beside_plain, "also steps without what saves memory, in turns");
  CLI::Option* models = command->add_option("--models", a->models, "both, or one alone, as for measuring its memory")
                            ->check(CLI::IsMember({"both", "dense", "mod"}))
                            ->capture_default_str();
  CLI::Option* profile = command->add_flag("--profile", a->profile, "where the time of a step goes, op by op");
  CLI::Option* check = command->add_flag("--check", a->check,
                                         "exit with 1 unless the goals hold, with 2 if there are none for this size");
  CLI::Option* scan =
      command->add_flag("--scan", a->scan, "against context, width, depth, batch and capacity, each alone");
  scan->excludes(models)->excludes(profile)->excludes(check)->excludes(plain);
  command->add_option("--seconds", a->seconds, "the scan takes at most about so long")
      ->check(above_0)
      ->check(finite)
      ->capture_default_str()
      ->needs(scan);
  command->add_option("--html", a->html, "write the scan as a page with charts")->needs(scan);
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] { run = [a] { return run_train(*a); }; });
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  CLI::App* command = app.add_subcommand("bench", "Measure this machine's speed; alone, lists what can be measured");
  command->footer(kFooter);
  command->require_subcommand(0, 1);
  add_bench_train(*command, run);
  add_bench_generate(*command, run);
  command->callback([command, &app, &run] {
    if (!command->get_subcommands().empty()) return;
    run = [&app] {
      std::printf("%s", app.help().c_str());  // that of the command that was named
      return 0;
    };
  });
}

}  // namespace isobath::cli
