#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/live_lines.h"
#include "cli/table_text.h"
#include "cli/terminal.h"
#include "lab/summary.h"
#include "lab/sweep.h"
#include "text/corpus.h"

namespace isobath::cli {
namespace {

using State = RunStatus::State;
using Clock = std::chrono::steady_clock;

struct Arguments {
  std::string study, path, out, only = "1/1";
  std::vector<std::string> after;
  int64_t jobs = 1;
  double peak_gflops = 0;
  bool dry_run = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath sweep studies/routing-hours.toml --path text.txt --dry-run    the runs, their FLOPs and predicted time\n"
    "  isobath sweep studies/routing-hours.toml --path text.txt --out runs/routing --jobs 2\n"
    "  isobath sweep study.toml --path text.txt --out shared/study --only $SLURM_ARRAY_TASK_ID/64\n"
    "Ctrl-C saves and exits; the same command goes on. Runs whose record is in OUT/records.jsonl are not repeated;\n"
    "parts (--only) that share a folder are put together by the same command without --only.\n"
    "Exit codes: 0 done, or interrupted and saved; 1 some runs failed; 2 wrong usage or input.";

std::string loss_text(const nlohmann::json& record) {
  std::string text = fmt::format("loss {:.4f}", record["top_k"]["loss"].get<double>());
  if (record.contains("causal")) text += fmt::format("  causal {:.4f}", record["causal"]["loss"].get<double>());
  return text;
}

// The sweep as lines: what is done, what runs and how far it is, how long the rest takes.
class SweepText {
 public:
  SweepText(std::string name, fs::path out) : name_(std::move(name)), out_(std::move(out)) {}

  std::vector<std::string> lines(const SweepStatus& s) const {
    std::vector<std::string> all{head(s)};
    for (const RunStatus& run : s.runs) {
      if (run.state != State::kRunning) continue;
      const double share = run.progress.flops / run.run->budget.flops;
      const int full = int(12 * share);
      all.push_back(fmt::format("  [{}{}] {:>3.0f}%  loss {:.4f}  {}", std::string(size_t(full), '='),
                                std::string(size_t(12 - full), ' '), 100 * share, run.progress.loss, run.run->label()));
    }
    return all;
  }
  std::string head(const SweepStatus& s) const {
    std::string text = fmt::format("{}: {} of {} done", name_, s.count(State::kDone), s.runs.size());
    if (const int64_t failed = s.count(State::kFailed)) text += fmt::format(", {} failed", failed);
    if (const int64_t running = s.count(State::kRunning)) text += fmt::format(", {} running", running);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (const double done = s.flops_done_now(); done > 0 && s.flops_left() > 0)
      text += ", ETA " + duration_text(s.flops_left() / done * seconds);
    return text;
  }
  // A line for every run that ended since the last call.
  std::vector<std::string> news(const SweepStatus& s) {
    told_.resize(s.runs.size(), State::kWaiting);
    std::vector<std::string> all;
    for (size_t i = 0; i < s.runs.size(); i++) {
      const RunStatus& run = s.runs[i];
      if (std::exchange(told_[i], run.state) == run.state || run.before) continue;
      if (run.state == State::kFailed) all.push_back(fmt::format("FAILED  {}: {}", run.run->label(), run.error));
      if (run.state != State::kDone) continue;
      const Records records = read_records(out_);
      const nlohmann::json* record = records.find(run.run->name);
      if (record == nullptr) continue;
      all.push_back(fmt::format("done    {}: {}  {}", run.run->label(), loss_text(*record),
                                duration_text((*record)["measured"]["seconds"].get<double>())));
    }
    return all;
  }

 private:
  std::string name_;
  fs::path out_;
  std::vector<State> told_;
  Clock::time_point start_ = Clock::now();
};

void print_plan(const Study& study, const std::vector<PlannedRun>& runs, const SweepOptions& options) {
  const SweepStatus status = sweep_status(study, runs, options);
  HtmlTable table;
  table.head = {"run", "", "parameters", "FLOPs/token", "of dense", "steps", "tokens", "FLOPs", "time", "state"};
  double seconds = 0, flops = 0;
  for (const RunStatus& s : status.runs) {
    const PlannedRun& run = *s.run;
    const double time = predicted_seconds(run, options.peak.fma_gflop_s);
    table.rows.push_back({run.label(), run.name, with_letter(double(run.parameters)), with_letter(run.flops_per_token),
                          fmt::format("{:.1f}%", 100 * run.flops_per_token / run.dense_flops_per_token),
                          std::to_string(run.budget.steps), with_letter(double(run.tokens())),
                          fmt::format("{:.4e}", run.budget.flops), duration_text(time),
                          s.taken    ? "in --after"
                          : s.before ? "done"
                                     : ""});
    if (s.before) continue;
    seconds += time;
    flops += run.budget.flops;
  }
  std::printf("%s%s%s\n\n%s\n", study.name.c_str(), study.title.empty() ? "" : ": ", study.title.c_str(),
              table_text(table).c_str());
  const double at_once = double(std::min(options.jobs, thread_count() / options.threads));  // more jobs share the cores
  std::printf("%zu runs, %lld done; left: %.4g FLOPs, about %s with --jobs %lld on this machine (%.0f GFLOP/s)\n",
              status.runs.size(), static_cast<long long>(status.count(State::kDone)), flops,
              duration_text(seconds / at_once).c_str(), static_cast<long long>(options.jobs),
              options.peak.fma_gflop_s * at_once);
}

int print_result(const Study& study, const std::vector<PlannedRun>& runs, const SweepStatus& status,
                 const SweepOptions& options) {
  std::vector<nlohmann::json> records;
  const Records all = read_records(options.out);
  for (const PlannedRun& run : runs)
    if (const nlohmann::json* record = all.find(run.name)) records.push_back(*record);
  if (!records.empty()) std::printf("\n%s\n", table_text(summary_table(summarize(records))).c_str());
  const int64_t failed = status.count(State::kFailed), waiting = status.count(State::kWaiting);
  for (const RunStatus& run : status.runs)
    if (run.state == State::kFailed)
      std::printf("failed: %s (%s): %s\n", run.run->label().c_str(), run.run->name.c_str(), run.error.c_str());
  std::printf("%s: %lld of %zu runs done, %lld failed, %lld to do; records in %s\n", study.name.c_str(),
              static_cast<long long>(status.count(State::kDone)), status.runs.size(), static_cast<long long>(failed),
              static_cast<long long>(waiting), options.out.c_str());
  if (waiting > 0) std::printf("interrupted and saved; the same command goes on\n");
  return failed > 0 ? 1 : 0;
}

SweepOptions options_of(const Arguments& a, const Study& study) {
  SweepOptions o;
  o.out = a.out.empty() ? fs::path("runs") / study.name : fs::path(a.out);
  o.program = fs::read_symlink("/proc/self/exe");
  o.part = parse_part(a.only);
  o.jobs = a.jobs;
  o.threads = std::max<int64_t>(1, thread_count() / a.jobs);
  o.peak = measure_machine_peak(a.peak_gflops > 0 ? 0 : 0.3);
  const double share = double(o.threads) / double(o.peak.threads);
  o.peak.fma_gflop_s = (a.peak_gflops > 0 ? a.peak_gflops : o.peak.fma_gflop_s) * share;
  o.peak.threads = int(o.threads);
  return o;
}

int run_sweep_command(const Arguments& a) {
  Study study = read_study(a.study);
  if (!a.path.empty()) study.base.data.path = a.path;
  for (const std::string& folder : a.after) {
    const Records earlier = read_records(folder);
    require(!earlier.records.empty(), "--after {}: no records of a study there", folder);
    for (const std::string& fault : earlier.faults)
      std::fprintf(stderr, "warning: %s; it is left out\n", fault.c_str());
    study.after.insert(study.after.end(), earlier.records.begin(), earlier.records.end());
  }
  const Tokenizer tokenizer = Tokenizer::load(study.base.data.tokenizer);
  const std::vector<PlannedRun> runs = plan_study(study, tokenizer);
  SweepOptions options = options_of(a, study);
  for (const char* other : {"latest", "metrics.jsonl", "config.json"})
    require(!fs::exists(options.out / other), "{} is the folder of a run or a model; name another one (--out)",
            options.out.string());
  if (!study.base.data.path.empty())
    options.corpus = Corpus::load(study.base.data.path, tokenizer, study.base.data.valid_path).hash;
  if (a.dry_run) {
    print_plan(study, runs, options);
    return 0;
  }
  require(!study.base.data.path.empty(), "data.path is missing: name a text file or folder (--path)");

  catch_signals();
  SweepText text(study.name, options.out);
  LiveLines live;
  Clock::time_point told{};
  const auto change = [&](const SweepStatus& s) {
    for (const std::string& line : text.news(s)) {
      live.clear();
      std::printf("%s\n", line.c_str());
      std::fflush(stdout);
    }
  };
  const auto tick = [&](const SweepStatus& s) {
    live.show(text.lines(s));
    if (error_is_terminal() || Clock::now() - told < std::chrono::seconds(60)) return;
    told = Clock::now();
    for (const std::string& line : text.lines(s)) std::fprintf(stderr, "%s\n", line.c_str());
  };
  for (const std::string& fault : sweep_status(study, runs, options).faults)
    std::fprintf(stderr, "warning: %s; its run is repeated\n", fault.c_str());
  const SweepStatus status = run_sweep(study, runs, options, {change, tick, interrupted});
  live.clear();
  if (const auto taken =
          std::count_if(status.runs.begin(), status.runs.end(), [](const RunStatus& r) { return r.taken; }))
    std::printf("%lld runs were trained by an earlier study (--after); their records are taken from it\n",
                static_cast<long long>(taken));
  if (status.strangers > 0)
    std::printf("%lld records are of runs that the study no longer has; they stay\n",
                static_cast<long long>(status.strangers));
  return print_result(study, runs, status, options);
}

}  // namespace

void add_sweep(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("sweep", "Train the models of a study, all with the same FLOPs");
  command->footer(kFooter);
  command
      ->add_option("study", a->study, "TOML file with [study], [[size]], [[variant]], [grid] and a config's sections")
      ->required();
  command->add_option("--path", a->path, "training text, instead of the study's data.path");
  command
      ->add_option("--after", a->after,
                   "folder of an earlier study, for rules that look for the best of it; runs that it has are not "
                   "repeated; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--out", a->out, "folder of the records; empty: runs/ and the study's name");
  command->add_option("--jobs", a->jobs, "runs at a time; the cores are split among them")
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->capture_default_str();
  command->add_option("--only", a->only, "part I of N: every N-th run, counted from the I-th")->capture_default_str();
  command->add_flag("--dry-run", a->dry_run, "print runs, FLOPs and predicted time; start nothing");
  command->add_option("--peak", a->peak_gflops, "GFLOP/s fp32 of the threads in use; 0: measured at the start")
      ->check(not_negative)
      ->check(finite)
      ->capture_default_str();
  add_threads(*command);
  command->callback([a, &run] { run = [a] { return run_sweep_command(*a); }; });
}

}  // namespace isobath::cli
