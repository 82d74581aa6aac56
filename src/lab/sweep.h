// Runs the runs of a study, each as a process of its own (`isobath train`), and keeps a record of every one that ends.
//
//   out/records.jsonl            (lab/record.h); of part 2 of 8: records-2-of-8.jsonl, so that parts may run at once
//   out/runs/NAME/               config.toml, log.txt, checkpoints and metrics.jsonl of a run; removed when its record
//                                is written, but with study.keep_checkpoints
//
// A run whose record is there is not repeated; one that was killed goes on from its last checkpoint, to the bit. So a
// study that was stopped at any moment and started again has the records of an undisturbed one, all but `measured`.
// Runs that an earlier study (study.after) has trained on the same text are taken from it, unless checkpoints are
// wanted.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/record.h"

namespace isobath {

struct SweepOptions {
  fs::path out;
  fs::path program;  // isobath
  StudyPart part;
  int64_t jobs = 1;
  int64_t threads = 1;  // of each job
  MachinePeak peak{};   // of one job's threads
  uint64_t corpus = 0;  // hash; 0: none is named yet
};

struct RunStatus {
  enum class State : uint8_t { kWaiting, kRunning, kDone, kFailed };
  const PlannedRun* run = nullptr;
  State state = State::kWaiting;
  RunProgress progress;
  double already = 0;   // FLOPs that were spent when this sweep took it up
  bool before = false;  // done when the sweep began
  bool taken = false;   // ... by an earlier study
  std::string error;    // of a failure
};

struct SweepStatus {
  std::vector<RunStatus> runs;      // of the part, in the study's order
  std::vector<std::string> faults;  // records that were not whole; their runs are repeated
  int64_t strangers = 0;            // records of runs that are not in the study
  int64_t count(RunStatus::State state) const;
  double flops_left() const, flops_done_now() const;  // of budgets; by this sweep
};

struct SweepObserver {
  std::function<void(const SweepStatus&)> on_change = {};  // a run started or ended
  std::function<void(const SweepStatus&)> on_tick = {};    // some times a second
  std::function<bool()> stop = {};                         // runs save and end; the sweep returns
};

// Throws what sweep_status does, and Error{kInput} for a folder that another sweep of the same part works in.
// Failed runs are in the result; they do not stop the others.
SweepStatus run_sweep(const Study& study, const std::vector<PlannedRun>& runs, const SweepOptions& options,
                      const SweepObserver& observer);

// What would be run: nothing is started or written. Throws Error{kInput} for records of another text.
SweepStatus sweep_status(const Study& study, const std::vector<PlannedRun>& runs, const SweepOptions& options);

}  // namespace isobath
