// What PairBench measured, for people and for programs.
#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "cli/pair_bench.h"

namespace isobath::cli {

std::string spread(const std::vector<double>& values, int digits, double unit) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return fmt::format("{:.{}f} ({:.{}f} to {:.{}f})", unit * median(values), digits, unit * *low, digits, unit * *high,
                     digits);
}

namespace {

double tokens_per_s(const PairTimes& t, const ModelTimes& m) {
  return double(t.setup.rows()) / median(m.step_ms) * 1e3;
}

std::string model_line(const char* name, const PairTimes& t, const ModelTimes& m) {
  const std::string held =
      m.anonymous_bytes ? fmt::format(", {} held", bytes_text(double(*m.anonymous_bytes))) : std::string();
  return fmt::format("{:<6} step {} ms  {} tok/s  {}% of peak  {} planned{}\n", name, spread(m.step_ms, 1),
                     with_letter(tokens_per_s(t, m)), spread(m.peak_share, 1, 100), bytes_text(double(m.planned_bytes)),
                     held);
}

std::string plain_line(const char* name, const ModelTimes& m) {
  return fmt::format("{:<6} over a step that saves no memory: time {}, of the cores {}\n", name,
                     spread(m.over_plain, 3), spread(m.cpu_over_plain, 3));
}

// How far the time follows the FLOPs, and what part of the difference lies in what costs by the parameter.
std::string ratio_lines(const PairTimes& t) {
  const std::vector<double> ratio = t.time_ratio(), rows_ratio = t.rows_time_ratio();
  return fmt::format(
      "time MoD / dense {}; FLOPs MoD / dense {:.3f} (as budgets count them, attention whole, {:.3f}): {:.3f} times\n"
      "without the work per parameter (norm, AdamW, packing: {:.1f} ms dense, {:.1f} ms MoD) {}: {:.3f} times\n",
      spread(ratio, 3), t.flop_ratio(), t.budget_flop_ratio(), median(ratio) / t.flop_ratio(),
      median(t.dense->parameter_ms), median(t.mod->parameter_ms), spread(rows_ratio, 3),
      median(rows_ratio) / t.flop_ratio());
}

// The peak is the best of many short pieces, which other programs hardly disturb; a step they slow.
std::string busy_line(const PairTimes& t) {
  constexpr double kQuiet = 0.95;
  const double share = std::min(t.dense ? median(t.dense->core_share) : 1, t.mod ? median(t.mod->core_share) : 1);
  if (share >= kQuiet) return "";
  return fmt::format(
      "steps had {:.0f}% of the cores' time: other programs were running, and shares of peak are too low\n",
      100 * share);
}

nlohmann::json to_json(const PairTimes& t, const ModelTimes& m) {
  nlohmann::json json{{"step_ms", m.step_ms},
                      {"parameter_ms", m.parameter_ms},
                      {"core_share", m.core_share},
                      {"peak_share", m.peak_share},
                      {"tokens_per_s", tokens_per_s(t, m)},
                      {"model_flops", m.model_flops},
                      {"utilisation_flops", m.utilisation_flops},
                      {"planned_bytes", m.planned_bytes},
                      {"anonymous_bytes", nullptr}};
  if (m.anonymous_bytes) json["anonymous_bytes"] = *m.anonymous_bytes;
  if (t.setup.beside_plain) {
    json["over_plain"] = m.over_plain;
    json["cpu_over_plain"] = m.cpu_over_plain;
  }
  return json;
}

}  // namespace

std::string text_of(const PairTimes& t) {
  const BenchSetup& s = t.setup;
  const size_t pairs = (t.dense ? t.dense : t.mod)->step_ms.size();
  std::string text = fmt::format("{}, {} threads, {}: {:.0f} GFLOP/s fp32, {:.0f} GB/s reading\n", t.peak.cpu,
                                 t.peak.threads, t.peak.simd, t.peak.fma_gflop_s, t.peak.read_gb_s);
  text += fmt::format("width {}, {} blocks, {} x {} tokens; {} {}, median (least to most)\n", s.model.hidden_size,
                      s.model.num_hidden_layers, s.batch, s.context, pairs, t.both() ? "pairs" : "steps");
  if (t.dense) text += model_line("dense", t, *t.dense);
  if (t.mod) text += model_line("MoD", t, *t.mod);
  if (t.both()) text += ratio_lines(t);
  if (s.beside_plain && t.dense) text += plain_line("dense", *t.dense);
  if (s.beside_plain && t.mod) text += plain_line("MoD", *t.mod);
  text += busy_line(t);
  return text;
}

nlohmann::json to_json(const MachinePeak& p) {
  return {{"cpu", p.cpu},
          {"threads", p.threads},
          {"simd", p.simd},
          {"fma_gflop_s", p.fma_gflop_s},
          {"read_gb_s", p.read_gb_s}};
}

nlohmann::json to_json(const PairTimes& t) {
  const ModelConfig& m = t.setup.model;
  nlohmann::json json{{"config",
                       {{"hidden_size", m.hidden_size},
                        {"num_hidden_layers", m.num_hidden_layers},
                        {"num_attention_heads", m.num_attention_heads},
                        {"vocab_size", m.vocab_size},
                        {"context", t.setup.context},
                        {"batch", t.setup.batch}}}};
  if (t.setup.memory.recompute != Recompute::kNone) json["config"]["recompute"] = name_of(t.setup.memory.recompute);
  if (t.setup.memory.packing != Packing::kStep) json["config"]["pack"] = name_of(t.setup.memory.packing);
  if (t.setup.memory.storage != Storage::kF32) json["config"]["storage"] = name_of(t.setup.memory.storage);
  if (t.dense) json["dense"] = to_json(t, *t.dense);
  if (t.mod) json["mod"] = to_json(t, *t.mod);
  if (t.both()) {
    json["time_ratio"] = t.time_ratio();
    json["flop_ratio"] = t.flop_ratio();
    json["budget_flop_ratio"] = t.budget_flop_ratio();
  }
  return json;
}

void add_goals(std::string& text, nlohmann::json& json, const std::vector<Goal>& goals) {
  json["goals"] = nlohmann::json::array();
  for (const Goal& g : goals) {
    json["goals"].push_back({{"name", g.name}, {"value", g.value}, {"limit", g.limit}, {"holds", g.holds}});
    text += fmt::format("goal: {}, {}\n", g.text, g.holds ? "holds" : "DOES NOT HOLD");
  }
  if (goals.empty()) text += "no goals for a model and batch of this size\n";
}

int check_code(const nlohmann::json& report) {
  const nlohmann::json& goals = report.at("goals");
  require(!goals.empty(), "--check: there is no goal for a model and batch of this size, so nothing was checked");
  return std::all_of(goals.begin(), goals.end(), [](const nlohmann::json& goal) { return bool(goal["holds"]); }) ? 0
                                                                                                                 : 1;
}

}  // namespace isobath::cli
