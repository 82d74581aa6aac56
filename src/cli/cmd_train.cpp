#include <cstdio>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoints.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/run_text.h"
#include "cli/terminal.h"
#include "train/trainer.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string config, resume;
  OptionFlags flags;
  double peak_gflops = 0;
  bool quiet = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath train configs/tiny.toml --path text.txt --out runs/tiny\n"
    "  isobath train configs/tiny.toml --path text.txt --topology dense --flops 1e12 --out runs/dense\n"
    "  isobath train --resume runs/tiny                 go on where it stopped, to the bit\n"
    "  isobath train --resume runs/tiny --steps 4000    go further; the learning rate follows the new budget\n"
    "  isobath train --from llama --path text.txt --topology joint --causal predictor --steps 500 \\\n"
    "      --train-only router,predictor                    a dense model's weights; only the new ones move\n"
    "Ctrl-C saves and exits; so does SIGTERM. Before the first step there is nothing to save, and the exit code is "
    "130.";

RunConfig run_config(const Arguments& a) {
  if (a.resume.empty()) return given_options(a.config, a.flags);
  const fs::path checkpoint = find_model_folder(a.resume);
  RunConfig config = stored_options(checkpoint);
  TrainOptions& t = config.train;
  const fs::path home = fs::canonical(checkpoint).parent_path();
  const bool at_home = belongs_to_run(checkpoint) || fs::equivalent(home, a.resume);  // the run itself was named
  t.out = at_home ? fs::proximate(home).string() : "";
  if (!t.from.empty()) t.from = checkpoint.string();  // has all that the model it began with brought
  if (!a.config.empty()) replace_budget(t, [&] { read_toml(a.config, config); });
  replace_budget(t, [&] { a.flags.apply(config); });
  require(!t.out.empty(), "{} is a copy of a checkpoint, outside of its run; name a folder to go on in (--out)",
          a.resume);
  return config;
}

// A layer whose causal rule takes everybody or nobody generates with another model than the one that was trained.
void warn_of_extreme_shares(const EvalRecord& record, const ModelConfig& config) {
  if (!record.causal) return;
  for (const LayerRouting& l : record.causal->layer)
    if (l.routed == 0 || (l.routed == l.rows && config.capacity(l.section) < 1))
      std::fprintf(stderr, "warning: %s: the causal rule routes %s token; generation would differ from training\n",
                   l.section.name().c_str(), l.routed == 0 ? "no" : "every");
}

int run_train(const Arguments& a) {
  if (!a.resume.empty()) warn_of_passed_over(a.resume);
  const RunConfig config = run_config(a);
  if (!config.train.from.empty()) warn_of_passed_over(config.train.from);
  const Tokenizer tokenizer = Tokenizer::load(config.data.tokenizer);
  check_options(config);
  const Corpus corpus = Corpus::load(config.data.path, tokenizer, config.data.valid_path);
  use_threads(config.train.threads);  // the peak is of the threads in use
  MachinePeak peak = measure_machine_peak(a.peak_gflops > 0 ? 0 : 0.3);
  if (a.peak_gflops > 0) peak.fma_gflop_s = a.peak_gflops;
  Trainer trainer(config, tokenizer, corpus, peak);
  if (!a.resume.empty()) trainer.resume(find_model_folder(a.resume));
  if (trainer.steps_done() == trainer.budget().steps)
    std::printf("the budget is spent; to go further name a larger one (--steps, --tokens, --flops)\n");
  if (!a.quiet) std::printf("%s", banner(trainer, corpus, peak).c_str());
  std::fflush(stdout);

  catch_signals();
  Progress progress("step");
  const int64_t already = trainer.steps_done();
  const TrainResult result = trainer.run({
      .on_step = [&](const StepRecord& r) { progress.update(r.step, r.steps, step_line(r), already); },
      .on_eval =
          [&](const EvalRecord& r) {
            progress.clear();
            std::printf("%s\n", eval_line(r).c_str());
            std::fflush(stdout);
            warn_of_extreme_shares(r, trainer.config().model);
          },
      .stop = interrupted,
  });
  progress.clear();
  if (result.interrupted)
    std::printf("interrupted at step %lld and saved: %s\ngo on with: isobath train --resume %s\n",
                static_cast<long long>(result.last.step), result.checkpoint.c_str(), config.train.out.c_str());
  else
    std::printf("done: %s\n", result.checkpoint.c_str());
  return 0;
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("train", "Train a model");
  command->footer(kFooter);
  command->add_option("config", a->config, "TOML file with [model], [routing], [data], [train]");
  command->add_option("--resume", a->resume, "run or checkpoint folder to go on from; its options are the defaults");
  command
      ->add_option("--peak", a->peak_gflops, "the machine's GFLOP/s that speed is a share of; 0: measured at the start")
      ->check(not_negative)
      ->check(finite)
      ->capture_default_str();
  command->add_flag("--quiet", a->quiet, "no banner");
  a->flags.add(*command, {"model", "routing", "experts", "data", "train"});
  command->callback([a, &run] { run = [a] { return run_train(*a); }; });
}

}  // namespace isobath::cli
