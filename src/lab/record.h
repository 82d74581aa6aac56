// What a finished run of a study is remembered by: one JSON object on one line of records.jsonl.
//
//   format            1
//   study, run, recipe, variant, size, grid, changed, seed    as the study planned it (lab/study.h)
//   parameters, flops_per_token, dense_flops_per_token        forward FLOPs, of the model and of its dense twin
//   budget, flops, steps, tokens                              FLOPs (or tokens) asked for; what the done steps summed
//   to top_k, causal     the evaluation over the whole validation text: loss, entropy, targets, windows, and of every
//                     routed section share, accuracy, precision, recall; no `causal` without a causal rule
//   curve             training [[flops, loss]] in at most 100 means; validation [[flops, top_k, causal,
//                     agreement]]; the last two where there is a causal rule
//   corpus            hash of tokenizer and text
//   measured          seconds of training, step_ms, tokens_per_s, peak_share (medians of the steps), memory_bytes,
//                     machine, threads, simd, fma_gflop_s, version: what another machine would have otherwise
//   check             hash of the rest: a record that was damaged does not pass for a result
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "lab/study.h"

namespace isobath {

struct RunMeasure {
  MachinePeak peak;  // of the threads that the run had
  uint64_t corpus = 0;
  int64_t memory_bytes = 0;
};

// Of a run whose metrics.jsonl says that it is done. Throws Error{kWork} where it does not.
nlohmann::json make_record(const Study& study, const PlannedRun& run, const fs::path& metrics,
                           const RunMeasure& measure);

// The same run as another study has it, with this one's names for it.
nlohmann::json record_of_study(const Study& study, const PlannedRun& run, nlohmann::json record);

// How often the causal rule chooses as top-k does: the mean over the routed sections of an evaluation by top-k. None
// where nothing is routed or there is no such rule.
std::optional<double> causal_agreement(const nlohmann::json& top_k);

// The options of a record's run as far as they decide its result; the others are at their default. Options that this
// version does not know are passed over.
RunConfig options_of(const nlohmann::json& record);

// A record of a run that no study planned, by its folder: its name is its variant.
nlohmann::json record_of_run(const fs::path& folder);

// How far a run is, by the end of its metrics.jsonl. None where nothing is told yet.
struct RunProgress {
  int64_t step = 0;
  double flops = 0, loss = 0;
};
std::optional<RunProgress> progress_of(const fs::path& metrics);

// Whether the last line of a run's metrics.jsonl says that it is done, or that it was interrupted.
enum class RunEnd : uint8_t { kNone, kDone, kInterrupted };
RunEnd end_of(const fs::path& metrics);

struct Records {
  std::vector<nlohmann::json> records;  // by run, each once
  std::vector<std::string> faults;      // "records.jsonl:3: ..." of lines that are no whole record
  const nlohmann::json* find(const std::string& run) const;
};

// All records*.jsonl of a folder; none where there is no folder.
Records read_records(const fs::path& folder);

// One line. With its check; whole or not at all.
std::string record_line(nlohmann::json record);
void write_records(const fs::path& file, const std::vector<nlohmann::json>& records);

}  // namespace isobath
