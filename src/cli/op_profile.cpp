#include "cli/op_profile.h"

#include <algorithm>

#include "cli/table_text.h"

namespace isobath::cli {
namespace {

double ms_of(const Profile::Op& op) { return op.seconds * 1e3; }

// What limits an op: arithmetic or memory, whichever it comes nearer to the machine's peak of.
struct Rate {
  double gflop_s, gb_s, arithmetic, memory;  // the last two are shares
  double share() const { return std::max(arithmetic, memory); }
  std::string text() const {
    return arithmetic > memory ? fmt::format("{:.0f} GFLOP/s", gflop_s) : fmt::format("{:.1f} GB/s   ", gb_s);
  }
};
Rate rate_of(const Profile::Op& op, const MachinePeak& peak) {
  const double gflop_s = 2e-9 * double(op.multiply_adds) / op.seconds, gb_s = 1e-9 * double(op.bytes) / op.seconds;
  return {gflop_s, gb_s, gflop_s / peak.fma_gflop_s, gb_s / peak.read_gb_s};
}

// All products as one, or all others.
Profile::Op together(const OpProfile& profile, bool product) {
  Profile::Op sum{.name = product ? "products" : "no product", .product = product};
  for (const Profile::Op& op : profile.ops) {
    if (op.product != product) continue;
    sum.calls += op.calls;
    sum.multiply_adds += op.multiply_adds;
    sum.bytes += op.bytes;
    sum.seconds += op.seconds;
  }
  return sum;
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

std::vector<std::string> row(const Profile::Op& op, double ms, const MachinePeak& peak) {
  const Rate rate = rate_of(op, peak);
  return {op.name,     std::to_string(op.calls), fmt::format("{:.2f}", ms_of(op)), percent(ms_of(op) / ms),
          rate.text(), percent(rate.share())};
}

nlohmann::json op_json(const Profile::Op& op, double ms, const MachinePeak& peak) {
  return {{"name", op.name},         {"product", op.product},
          {"calls", op.calls},       {"ms", ms_of(op)},
          {"share", ms_of(op) / ms}, {"multiply_adds", op.multiply_adds},
          {"bytes", op.bytes},       {"peak_share", rate_of(op, peak).share()}};
}

}  // namespace

OpProfile::OpProfile(double ms, const Profile& profile) : ms(ms), ops(profile.ops().begin(), profile.ops().end()) {
  std::stable_sort(ops.begin(), ops.end(),
                   [](const Profile::Op& a, const Profile::Op& b) { return a.seconds > b.seconds; });
}

double OpProfile::ms_of(bool product) const {
  double sum = 0;
  for (const Profile::Op& op : ops)
    if (op.product == product) sum += cli::ms_of(op);
  return sum;
}

std::string text_of(const OpProfile& p, const MachinePeak& peak, std::string_view whole) {
  HtmlTable table{{"op", "calls", "ms", fmt::format("of {}", whole), "rate", "of peak"}, {}};
  for (const Profile::Op& op : p.ops) table.rows.push_back(row(op, p.ms, peak));
  for (const bool product : {true, false}) table.rows.push_back(row(together(p, product), p.ms, peak));
  table.rows.push_back(
      {"outside ops", "", fmt::format("{:.2f}", p.outside_ms()), percent(p.outside_ms() / p.ms), "", ""});
  return table_text(table);
}

nlohmann::json to_json(const OpProfile& p, const MachinePeak& peak) {
  nlohmann::json json{{"ms", p.ms},
                      {"products_ms", p.ms_of(true)},
                      {"no_product_ms", p.ms_of(false)},
                      {"outside_ms", p.outside_ms()},
                      {"ops", nlohmann::json::array()}};
  for (const Profile::Op& op : p.ops) json["ops"].push_back(op_json(op, p.ms, peak));
  return json;
}

StepProfile profile_step(StepBench& bench, int64_t steps) {
  StepProfile best;
  for (int64_t i = 0; i < steps; i++) {
    const Profile profile;
    const StepTime time = bench.step();
    if (i > 0 && time.ms >= best.time.ms) continue;
    best = {{time.ms, profile}, time.core_share, double(bench.utilisation_flops())};
  }
  return best;
}

std::string text_of(const StepProfile& p, const MachinePeak& peak) {
  const double products = p.time.ms_of(true);
  const double share = p.utilisation_flops / (p.time.ms * 1e6) / peak.fma_gflop_s;
  const double alone = p.utilisation_flops / (products * 1e6) / peak.fma_gflop_s;
  return text_of(p.time, peak, "step") +
         fmt::format(
             "a step of {:.1f} ms ({} of the cores' time) at {} of peak; its products alone would be at {}: what is no "
             "product costs {} of the step\n",
             p.time.ms, percent(p.core_share), percent(share), percent(alone), percent(1 - products / p.time.ms));
}

nlohmann::json to_json(const StepProfile& p, const MachinePeak& peak) {
  nlohmann::json json = to_json(p.time, peak);
  json["core_share"] = p.core_share;
  return json;
}

}  // namespace isobath::cli
