#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/depth_text.h"
#include "cli/flags.h"
#include "cli/run_text.h"
#include "cli/table_text.h"
#include "cli/terminal.h"
#include "lab/report.h"

namespace isobath::cli {
namespace {

struct Arguments {
  TwinOptions options;
  std::string out = "runs/demo", colour = "auto";
  CLI::Option* seconds = nullptr;
};

constexpr double kSeconds = 240, kShortSeconds = 20;
// A slow or busy machine takes longer rather than fail: twice what the rule needs on the King James Bible.
constexpr double kLeastFlops = 2.5e12, kShortLeastFlops = 5e11;
constexpr int64_t kPassage = 640, kSampleBytes = 240;

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath demo --data text.txt                    about five minutes, then runs/demo/report.html\n"
    "  isobath demo --data text.txt --seconds 1200     a longer look at the same\n"
    "Passes (exit code 0) when both losses lie under the trigram baseline, the MoD model's causal loss is within 0.03\n"
    "nats of its top-k loss, and every routed block's causal share lies in [C/3, 3C]. With --short: under the\n"
    "bigram baseline instead. An earlier demo in the folder is replaced.";

Twin train(const RunConfig& config, Comparison& c, const Tokenizer& tokenizer, const Corpus& corpus) {
  const char* name = config.model.routing.topology == Topology::kDense ? "dense" : "MoD  ";
  Progress progress(name);
  const Observer observer{
      .on_step = [&](const StepRecord& r) { progress.update(r.step, r.steps, step_line(r)); },
      .on_eval = {},
      .on_save = {},
      .on_eval_progress = {},
      .stop = interrupted,
  };
  Twin twin = train_twin(config, c.probe.flops, tokenizer, corpus, c.peak, observer);
  progress.clear();
  if (!twin.interrupted)
    std::printf("%s  trained in %s: %s\n", name, duration_text(twin.training_seconds).c_str(),
                eval_line(twin.evaluation).c_str());
  std::fflush(stdout);
  return twin;
}

void print_samples(const Comparison& c) {
  for (const Twin* twin : {&c.dense, &c.mod}) {
    std::printf("\n%s writes\n", twin->name.c_str());
    for (const Sample& sample : twin->samples) {
      std::string text = (sample.prompt + sample.text).substr(0, size_t(kSampleBytes));
      std::replace(text.begin(), text.end(), '\n', ' ');
      while (!text.empty() && uint8_t(text.back()) >= 0x80) text.pop_back();  // a character cut short
      std::printf("  %s...\n", without_controls(text).c_str());
    }
  }
}

int print_verdicts(const Comparison& c) {
  std::printf("\n%s\n", winner(c).c_str());
  bool passed = true;
  for (const Verdict& verdict : judge(c)) {
    std::printf("%s  %s\n", verdict.passed ? "PASS" : "FAIL", verdict.text.c_str());
    passed = passed && verdict.passed;
  }
  return passed ? 0 : 1;
}

void print_start(const Comparison& c, const Corpus& corpus) {
  std::printf("text      %s: %s tokens to train on, %s held out\n", c.options.data.c_str(),
              with_letter(double(corpus.train.size())).c_str(), with_letter(double(corpus.valid.size())).c_str());
  std::printf("machine   %s, threads: %d, %s, %.0f GFLOP/s fp32 measured\n", c.peak.cpu.c_str(), c.peak.threads,
              c.peak.simd.c_str(), c.peak.fma_gflop_s);
  std::printf("baseline  nats per byte: unigram %.4f, bigram %.4f, trigram %.4f\n", c.baseline.unigram,
              c.baseline.bigram, c.baseline.trigram);
  std::fflush(stdout);
}

int run_demo(Arguments& a) {
  if (a.seconds->count() == 0) {
    a.options.seconds = a.options.quick ? kShortSeconds : kSeconds;
    a.options.least_flops = a.options.quick ? kShortLeastFlops : kLeastFlops;
  }
  a.options.out = a.out;
  const TwinSetup setup = twin_setup(a.options);
  const Tokenizer tokenizer = Tokenizer::bytes();
  const Corpus corpus = Corpus::load(a.options.data, tokenizer);
  Comparison c{.options = a.options,
               .train_tokens = corpus.train.size(),
               .valid_tokens = corpus.valid.size(),
               .peak = measure_machine_peak(),
               .probe{},
               .baseline = count_baseline(setup, tokenizer, corpus),
               .dense{},
               .mod{}};
  print_start(c, corpus);
  c.probe = probe_budget(setup, tokenizer, corpus, c.peak);
  std::printf(
      "budget    %.3g training FLOPs for each model, from a probe of this machine: about %s dense (%.0f GFLOP/s) "
      "and %s MoD (%.0f GFLOP/s)\n",
      c.probe.flops, duration_text(c.probe.dense_seconds).c_str(), c.probe.dense_flop_s / 1e9,
      duration_text(c.probe.mod_seconds).c_str(), c.probe.mod_flop_s / 1e9);
  if (c.probe.dense_flop_s < 0.1e9 * c.peak.fma_gflop_s)
    std::printf("          (slow for this machine: other programs seem to use it; times below mean little)\n");
  std::fflush(stdout);

  catch_signals();
  c.dense = train(setup.dense, c, tokenizer, corpus);
  if (!c.dense.interrupted) c.mod = train(setup.mod, c, tokenizer, corpus);
  if (c.dense.interrupted || c.mod.interrupted) {
    std::printf("interrupted; what was trained lies in %s\n", a.out.c_str());
    return 0;
  }
  std::printf("\n");
  std::printf("%s", table_text(comparison_table(c)).c_str());
  print_samples(c);
  std::printf("\nMoD, validation text: %s", depth_text(c.mod.trace, tokenizer, kPassage, use_colour(a.colour)).c_str());
  const int code = print_verdicts(c);
  const std::string vega = vega_script();
  const fs::path page = a.options.out / "report.html";
  replace_file(page, comparison_page(c, tokenizer, vega));
  std::printf("\nreport    %s%s\nmore      isobath inspect %s --text '...', isobath generate %s\n", page.c_str(),
              vega.empty() ? " (without charts: install the Debian package libjs-vega)" : "",
              setup.mod.train.out.c_str(), setup.mod.train.out.c_str());
  return code;
}

}  // namespace

void add_demo(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("demo", "Train a dense model and its Mixture-of-Depths twin on a text, and compare them");
  command->footer(kFooter);
  command->add_option("--data", a->options.data, "text, JSONL or token shards: a file or a folder")->required();
  command->add_option("--out", a->out, "folder of the report and of both models")->capture_default_str();
  a->seconds =
      command->add_option("--seconds", a->options.seconds, "of training, both models together (240; with --short 20)")
          ->check(finite);
  command->add_flag("--short", a->options.quick, "a quick pass through every stage, which promises less");
  command->add_option("--seed", a->options.seed, "of start values, order of the text, samples")
      ->check(not_negative)
      ->capture_default_str();
  add_threads(*command);
  command->add_option("--color", a->colour, "colours in the terminal; without them, numbers below the text")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->callback([a, &run] { run = [a] { return run_demo(*a); }; });
}

}  // namespace isobath::cli
