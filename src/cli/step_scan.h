// What a training step costs against one property at a time: context at a constant number of tokens, width, depth,
// batch, capacity, each around the model and batch that were asked for.
#pragma once

#include <string>
#include <vector>

#include "cli/pair_bench.h"
#include "lab/scan.h"

namespace isobath::cli {

struct ScanResult {
  struct Point {
    std::string value, detail;
    BenchSetup setup;
    PairTimes times{};  // of no pairs: left out, there was no time for it
    bool measured() const { return times.dense && !times.dense->step_ms.empty(); }
  };
  struct Axis {
    std::string name, note;
    std::vector<Point> points;
  };
  MachinePeak peak{};  // of the first pair
  BenchSetup base;
  std::vector<Axis> axes;
};

// Some points for each axis, nothing measured.
std::vector<ScanResult::Axis> scan_axes(const BenchSetup& base);

// At most `most_pairs` pairs of steps at each point, fewer if `seconds` are not enough for all; where one pair is too
// much, the most expensive points are left out. Shows progress.
ScanResult scan_steps(const BenchSetup& base, int64_t most_pairs, double seconds);

StepScan page_of(const ScanResult& result);  // for tables and charts
nlohmann::json to_json(const ScanResult& result);

}  // namespace isobath::cli
