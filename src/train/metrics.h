// metrics.jsonl: one JSON object per line, a step, an evaluation or the end of the run. The same record as the terminal
// line, for programs to read.
#pragma once

#include <cstdio>

#include "train/trainer.h"

namespace isobath {

class Metrics {
 public:
  // Opens out/metrics.jsonl. `resumed_step`: lines of later steps, which a killed run may have left, are dropped.
  Metrics(const fs::path& out, int64_t resumed_step);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  ~Metrics();

  // Throw Error{kWork} when the disk is full.
  void write(const StepRecord& record);
  void write(const EvalRecord& record);
  void end(int64_t step, bool interrupted);

 private:
  void line(const nlohmann::json& record);
  fs::path path_;
  std::FILE* file_ = nullptr;
};

nlohmann::json to_json(const LayerRouting& layer);
nlohmann::json to_json(const Evaluation& evaluation);

}  // namespace isobath
