#include "lab/record.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/version.h"
#include "checkpoint/checkpoints.h"
#include "lab/statistics.h"
#include "train/trainer.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr size_t kCurvePoints = 100;

// Null for a line that is none, as a kill may leave.
Json parse_line(const std::string& line) {
  try {
    return parse_json(line, "a line");
  } catch (const Error&) {
    return {};
  }
}

// What metrics.jsonl tells of a run.
struct Told {
  std::vector<Json> steps;
  std::vector<Json> evaluations;
  bool done = false;
};

Told read_metrics(const fs::path& path) {
  Told told;
  std::istringstream lines(read_file(path));
  for (std::string text; std::getline(lines, text);) {
    Json line = parse_line(text);
    if (!line.is_object()) continue;  // cut short by a kill
    const Json event = line.value("event", Json());
    if (event == "step") told.steps.push_back(std::move(line));
    if (event == "eval") told.evaluations.push_back(std::move(line));
    if (event == "end") told.done = line.value("status", Json()) == "done";
  }
  return told;
}

Json training_curve(const std::vector<Json>& steps) {
  const size_t points = std::min(kCurvePoints, steps.size());
  Json curve = Json::array();
  for (size_t p = 0; p < points; p++) {
    const size_t begin = steps.size() * p / points, end = steps.size() * (p + 1) / points;
    double loss = 0;
    for (size_t i = begin; i < end; i++) loss += steps[i]["loss"].get<double>();
    curve.push_back({steps[end - 1]["flops"], loss / double(end - begin)});
  }
  return curve;
}

// An evaluation stands before the step that follows it, and tells no FLOPs of its own.
Json validation_curve(const Told& told) {
  Json curve = Json::array();
  size_t next = 0;
  for (const Json& evaluation : told.evaluations) {
    while (next < told.steps.size() && told.steps[next]["step"] <= evaluation["step"]) next++;
    Json point{next > 0 ? told.steps[next - 1]["flops"] : Json(0.0), evaluation["top_k"]["loss"]};
    if (evaluation.contains("causal")) point.push_back(evaluation["causal"]["loss"]);
    if (const auto agreement = causal_agreement(evaluation["top_k"])) point.push_back(*agreement);
    curve.push_back(point);
  }
  return curve;
}

double median_of(const std::vector<Json>& steps, const char* key) {
  std::vector<double> values;
  for (const Json& step : steps) values.push_back(step[key]);
  return quantile(values, 0.5);
}

Json measured(const Told& told, const RunMeasure& m) {
  double ms = 0;
  for (const Json& step : told.steps) ms += step["step_ms"].get<double>();
  return {{"seconds", ms / 1e3},
          {"step_ms", median_of(told.steps, "step_ms")},
          {"tokens_per_s", median_of(told.steps, "tokens_per_s")},
          {"peak_share", median_of(told.steps, "peak_share")},
          {"memory_bytes", m.memory_bytes},
          {"machine", m.peak.cpu},
          {"threads", m.peak.threads},
          {"simd", m.peak.simd},
          {"fma_gflop_s", m.peak.fma_gflop_s},
          {"version", build_version()}};
}

std::string check_of(const Json& record) { return fmt::format("{:016x}", hash_bytes(record.dump())); }

// What is wrong with a line, or nothing.
std::string fault_of(Json& record) {
  if (!record.is_object()) return "not a JSON object";
  if (record.value("format", Json()) != kFormat)
    return fmt::format("of format {}, expected {}", record.value("format", Json()).dump(), kFormat);
  const Json check = record.value("check", Json());
  record.erase("check");
  if (check != check_of(record)) return "damaged: its check does not agree with it";
  if (!record.value("run", Json()).is_string()) return "without the name of a run";
  return "";
}

void read_file_into(Records& all, const fs::path& file) {
  std::istringstream lines(read_file(file));
  int64_t number = 0;
  for (std::string text; std::getline(lines, text);) {
    number++;
    Json record = parse_line(text);
    const std::string fault = fault_of(record);
    if (fault.empty()) {
      if (all.find(record["run"].get<std::string>()) == nullptr) all.records.push_back(std::move(record));
      continue;
    }
    const bool named = record.is_object() && record.value("run", Json()).is_string();
    all.faults.push_back(fmt::format("{}:{}: {}{}", file.string(), number, fault,
                                     named ? " (run " + record["run"].get<std::string>() + ")" : ""));
  }
}

}  // namespace

std::optional<double> causal_agreement(const Json& top_k) {
  double sum = 0;
  int64_t layers = 0;
  for (const Json& layer : top_k.at("layers"))
    if (layer.contains("accuracy")) sum += layer["accuracy"].get<double>(), layers++;
  return layers > 0 ? std::optional(sum / double(layers)) : std::nullopt;
}

Json make_record(const Study& study, const PlannedRun& run, const fs::path& metrics, const RunMeasure& measure) {
  const Told told = read_metrics(metrics);
  if (!told.done || told.steps.empty() || told.evaluations.empty())
    fail_work("{}: the run did not end, or the file is damaged", metrics.string());
  const Json &last = told.steps.back(), &evaluation = told.evaluations.back();
  Json record{{"format", kFormat},
              {"run", run.name},
              {"recipe", run.recipe},
              {"changed", run.changed},
              {"seed", run.config.train.seed},
              {"parameters", run.parameters},
              {"flops_per_token", run.flops_per_token},
              {"dense_flops_per_token", run.dense_flops_per_token},
              {"budget", run.asked()},
              {"flops", last["flops"]},
              {"steps", last["step"]},
              {"tokens", last["tokens"]},
              {"top_k", evaluation["top_k"]},
              {"curve", {{"training", training_curve(told.steps)}, {"validation", validation_curve(told)}}},
              {"corpus", fmt::format("{:016x}", measure.corpus)},
              {"measured", measured(told, measure)}};
  if (evaluation.contains("causal")) record["causal"] = evaluation["causal"];
  return record_of_study(study, run, std::move(record));
}

Json record_of_study(const Study& study, const PlannedRun& run, Json record) {
  record["study"] = study.name;
  record["variant"] = run.variant;
  record["size"] = run.size;
  record["grid"] = run.grid;
  return record;
}

RunConfig options_of(const Json& record) {
  RunConfig config;
  for (const auto& [section, options] : record.at("changed").items())
    for (const auto& [key, value] : options.items()) set_option(config, section, key, value, "record");
  return config;
}

Json record_of_run(const fs::path& folder) {
  require(fs::exists(folder / "metrics.jsonl"),
          "{}: neither records of a study (records.jsonl) nor a run (metrics.jsonl)", folder.string());
  const RunConfig config = stored_options(find_model_folder(folder));
  Study study;
  study.name = "runs";
  PlannedRun run = plan_run(config, Tokenizer::load(config.data.tokenizer));
  run.variant = fs::weakly_canonical(folder).filename().string();
  run.recipe = run.variant;
  run.grid = Json::object();
  const fs::path metrics = folder / "metrics.jsonl";
  try {
    Json record = make_record(study, run, metrics, {.peak = {}, .corpus = 0, .memory_bytes = 0});
    record["budget"] = record["flops"];
    record["corpus"] = "";  // nobody noted it
    for (const char* evaluation : {"top_k", "causal"})
      if (const auto found = record.find(evaluation); found != record.end()) found->at("loss").get<double>();
    return record;
  } catch (const Json::exception& error) {
    fail_work("{}: damaged: {}", metrics.string(), error.what());
  }
}

std::optional<RunProgress> progress_of(const fs::path& metrics) {
  constexpr std::streamoff kTail = 1 << 16;
  std::ifstream file(metrics, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return {};
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  std::optional<RunProgress> progress;
  for (std::string text; std::getline(file, text);) {
    const Json line = parse_line(text);
    if (line.is_object() && line.value("event", Json()) == "step")
      progress = {line["step"], line["flops"], line["loss"]};
  }
  return progress;
}

RunEnd end_of(const fs::path& metrics) {
  std::string last;
  std::istringstream lines(read_file(metrics));
  for (std::string line; std::getline(lines, line);) last = line;
  const Json end = parse_line(last);
  if (!end.is_object() || end.value("event", Json()) != "end") return RunEnd::kNone;
  return end.value("status", Json()) == "done" ? RunEnd::kDone : RunEnd::kInterrupted;
}

const Json* Records::find(const std::string& run) const {
  for (const Json& record : records)
    if (record["run"] == run) return &record;
  return nullptr;
}

Records read_records(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("records") && name.ends_with(".jsonl")) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  Records all;
  for (const fs::path& file : files) read_file_into(all, file);
  return all;
}

std::string record_line(Json record) {
  record.erase("check");
  record["check"] = check_of(record);
  return record.dump() + "\n";
}

void write_records(const fs::path& file, const std::vector<Json>& records) {
  std::string text;
  for (const Json& record : records) text += record_line(record);
  replace_file(file, text);
}

}  // namespace isobath
