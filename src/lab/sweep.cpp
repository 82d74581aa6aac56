#include "lab/sweep.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <list>
#include <map>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/process.h"
#include "checkpoint/checkpoints.h"
#include "lab/study_after.h"

namespace isobath {
namespace {

using Json = nlohmann::json;
using State = RunStatus::State;

constexpr auto kTick = std::chrono::milliseconds(100);

// A process that was killed a moment ago may still hold the lock of its run.
FolderLock lock_patiently(const fs::path& folder) {
  for (int tries = 100;; tries--) try {
      return FolderLock(folder);
    } catch (const Error&) {
      if (tries == 0) throw;
      std::this_thread::sleep_for(kTick);
    }
}

// The last error that a run's log tells, or how its process ended.
std::string failure_of(const fs::path& log, const ProcessEnd& end) {
  std::string error;
  std::istringstream lines(read_file(log));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("error: ")) error = line.substr(7);
  if (end.signal != 0) return fmt::format("ended by signal {}", end.signal);
  return error.empty() ? fmt::format("exit code {}; see {}", end.code, log.string()) : error;
}

class Sweep {
 public:
  Sweep(const Study& study, const std::vector<PlannedRun>& runs, const SweepOptions& options,
        const SweepObserver& observer)
      : study_(study), all_(runs), options_(options), observer_(observer) {
    lock_ = lock_patiently(made(options.out / (".sweep" + suffix())));
    status_ = sweep_status(study, runs, options);
    for (const Json& record : read_records(options.out).records)
      records_.emplace(record["run"].get<std::string>(), record);
    for (const RunStatus& run : status_.runs)
      if (run.taken)
        records_.emplace(run.run->name,
                         record_of_study(study, *run.run, *trained_before(study.after, run.run->name, options.corpus)));
    made(options.out / "runs");
    for (const RunStatus& run : status_.runs)
      if (run.state == State::kDone) drop(*run.run);
    if (!status_.faults.empty() || status_.count(State::kDone) > 0) write();
  }

  SweepStatus run() {
    tell(observer_.on_change);
    bool stopped = false;
    while (!stopped) {
      fill();
      if (jobs_.empty()) break;
      std::this_thread::sleep_for(kTick);
      collect();
      for (Job& job : jobs_) look(job);
      tell(observer_.on_tick);
      stopped = observer_.stop && observer_.stop();
    }
    stopping_ = true;
    for (Job& job : jobs_) job.process.ask_to_stop();
    while (!jobs_.empty()) {
      std::this_thread::sleep_for(kTick);
      collect();
    }
    return status_;
  }

 private:
  struct Job {
    RunStatus* run;
    ChildProcess process;
  };

  static fs::path made(const fs::path& folder) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) fail("cannot make the folder {}: {}; name another one (--out)", folder.string(), error.message());
    return folder;
  }
  std::string suffix() const {
    return options_.part.of == 1 ? "" : fmt::format("-{}-of-{}", options_.part.index, options_.part.of);
  }
  fs::path folder_of(const PlannedRun& run) const { return options_.out / "runs" / run.name; }
  void tell(const std::function<void(const SweepStatus&)>& observer) const {
    if (observer) observer(status_);
  }

  // Starts runs until all jobs have one.
  void fill() {
    for (RunStatus& run : status_.runs) {
      if (int64_t(jobs_.size()) >= options_.jobs) return;
      if (run.state != State::kWaiting) continue;
      try {
        jobs_.push_back({&run, start(*run.run)});
        run.state = State::kRunning;
        look(jobs_.back());
        run.already = run.progress.flops;
      } catch (const Error& error) {
        run.state = State::kFailed;
        run.error = error.what();
      }
      tell(observer_.on_change);
    }
  }

  ChildProcess start(const PlannedRun& run) const {
    const fs::path folder = made(folder_of(run));
    { const FolderLock free = lock_patiently(folder); }
    std::vector<std::string> words{"train"};
    if (latest_checkpoint(folder)) {
      words.insert(words.end(), {"--resume", folder.string(), "--path", run.config.data.path});
    } else {
      RunConfig config = run.config;
      config.train.out = folder.string();
      config.train.keep = 1;
      if (config.train.save_every == 0) config.train.save_every = std::max<int64_t>(1, run.budget.steps / 8);
      replace_file(folder / "config.toml", options_to_toml(config));
      words.push_back((folder / "config.toml").string());
    }
    words.insert(words.end(), {"--threads", std::to_string(options_.threads), "--peak",
                               fmt::format("{}", options_.peak.fma_gflop_s)});
    return ChildProcess(options_.program, words, folder / "log.txt");
  }

  void look(Job& job) const {
    if (const auto progress = progress_of(folder_of(*job.run->run) / "metrics.jsonl")) job.run->progress = *progress;
  }

  void collect() {
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      const auto end = job->process.poll();
      if (!end) {
        ++job;
        continue;
      }
      finish(*job->run, *end);
      job = jobs_.erase(job);
      tell(observer_.on_change);
    }
  }

  void finish(RunStatus& run, const ProcessEnd& end) {
    const fs::path folder = folder_of(*run.run), metrics = folder / "metrics.jsonl", log = folder / "log.txt";
    const RunEnd told = fs::exists(metrics) ? end_of(metrics) : RunEnd::kNone;
    const bool failed = end.code != 0 || end.signal != 0;
    if (!failed && told == RunEnd::kDone) {
      records_[run.run->name] =
          make_record(study_, *run.run, metrics,
                      {.peak = options_.peak, .corpus = options_.corpus, .memory_bytes = end.most_bytes});
      write();
      drop(*run.run);
      run.state = State::kDone;
      return;
    }
    // Asked to stop it has saved, or had not come so far as to listen.
    const bool early = stopping_ && (end.signal == SIGTERM || end.code == 128 + SIGTERM);
    if (early || (!failed && told == RunEnd::kInterrupted)) {
      run.state = State::kWaiting;
      return;
    }
    run.state = State::kFailed;
    run.error = failed ? failure_of(log, end) : "it did not end; see " + log.string();
  }

  // In the study's order, those of other runs last. A sweep of all runs takes over what its parts have written.
  void write() const {
    std::vector<Json> lines;
    std::map<std::string, Json> rest = records_;
    for (size_t i = 0; i < all_.size(); i++) {
      const auto found = rest.find(all_[i].name);
      if (found == rest.end()) continue;
      if (options_.part.holds(i)) lines.push_back(found->second);
      rest.erase(found);
    }
    if (options_.part.of == 1)
      for (const auto& [name, record] : rest) lines.push_back(record);
    write_records(options_.out / ("records" + suffix() + ".jsonl"), lines);
  }

  void drop(const PlannedRun& run) const {
    std::error_code ignored;
    if (!study_.keep_checkpoints) fs::remove_all(folder_of(run), ignored);
  }

  const Study& study_;
  const std::vector<PlannedRun>& all_;
  const SweepOptions& options_;
  const SweepObserver& observer_;
  FolderLock lock_;
  SweepStatus status_;
  std::map<std::string, Json> records_;
  std::list<Job> jobs_;
  bool stopping_ = false;
};

}  // namespace

int64_t SweepStatus::count(State state) const {
  return std::count_if(runs.begin(), runs.end(), [&](const RunStatus& run) { return run.state == state; });
}

double SweepStatus::flops_left() const {
  double left = 0;
  for (const RunStatus& run : runs)
    if (run.state == State::kWaiting || run.state == State::kRunning)
      left += std::max(0.0, run.run->budget.flops - run.progress.flops);
  return left;
}

double SweepStatus::flops_done_now() const {
  double done = 0;
  for (const RunStatus& run : runs)
    if (!run.before) done += (run.state == State::kDone ? run.run->budget.flops : run.progress.flops) - run.already;
  return done;
}

SweepStatus sweep_status(const Study& study, const std::vector<PlannedRun>& runs, const SweepOptions& options) {
  const Records records = read_records(options.out);
  SweepStatus status;
  status.faults = records.faults;
  for (size_t i = 0; i < runs.size(); i++) {
    if (!options.part.holds(i)) continue;
    RunStatus run;
    run.run = &runs[i];
    const bool here = records.find(runs[i].name) != nullptr;
    run.taken =
        !here && !study.keep_checkpoints && trained_before(study.after, runs[i].name, options.corpus) != nullptr;
    run.before = here || run.taken;
    if (run.before) run.state = State::kDone;
    status.runs.push_back(run);
  }
  for (const Json& record : records.records) {
    if (options.corpus != 0 && record["corpus"] != fmt::format("{:016x}", options.corpus))
      fail("{}: the record of run {} is of another text; name another folder (--out)", options.out.string(),
           record["run"].get<std::string>());
    status.strangers +=
        std::none_of(runs.begin(), runs.end(), [&](const PlannedRun& r) { return r.name == record["run"]; });
  }
  return status;
}

SweepStatus run_sweep(const Study& study, const std::vector<PlannedRun>& runs, const SweepOptions& options,
                      const SweepObserver& observer) {
  return Sweep(study, runs, options, observer).run();
}

}  // namespace isobath
