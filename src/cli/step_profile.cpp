#include "cli/step_profile.h"

#include <algorithm>

#include "cli/table_text.h"

namespace isobath::cli {
namespace {

double ms_of(const Profile::Op& op) { return op.seconds * 1e3; }
double gflop_s(const Profile::Op& op) { return 2e-9 * double(op.multiply_adds) / op.seconds; }
double gb_s(const Profile::Op& op) { return 1e-9 * double(op.bytes) / op.seconds; }
// Of what limits the op: arithmetic for products, memory for the others.
double peak_share(const Profile::Op& op, const MachinePeak& peak) {
  return op.product ? gflop_s(op) / peak.fma_gflop_s : gb_s(op) / peak.read_gb_s;
}

// All products as one, or all others.
Profile::Op together(const StepProfile& profile, bool product) {
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

std::vector<std::string> row(const Profile::Op& op, double step_ms, const MachinePeak& peak) {
  const std::string rate =
      op.product ? fmt::format("{:.0f} GFLOP/s", gflop_s(op)) : fmt::format("{:.1f} GB/s   ", gb_s(op));
  return {op.name, std::to_string(op.calls),     fmt::format("{:.2f}", ms_of(op)), percent(ms_of(op) / step_ms),
          rate,    percent(peak_share(op, peak))};
}

nlohmann::json op_json(const Profile::Op& op, double step_ms, const MachinePeak& peak) {
  return {{"name", op.name},
          {"product", op.product},
          {"calls", op.calls},
          {"ms", ms_of(op)},
          {"share", ms_of(op) / step_ms},
          {"multiply_adds", op.multiply_adds},
          {"bytes", op.bytes},
          {"peak_share", peak_share(op, peak)}};
}

}  // namespace

double StepProfile::ms(bool product) const {
  double sum = 0;
  for (const Profile::Op& op : ops)
    if (op.product == product) sum += ms_of(op);
  return sum;
}

StepProfile profile_step(StepBench& bench, int64_t steps) {
  StepProfile best;
  for (int64_t i = 0; i < steps; i++) {
    const Profile profile;
    const StepTime time = bench.step();
    if (i > 0 && time.ms >= best.step_ms) continue;
    best = {.step_ms = time.ms,
            .core_share = time.core_share,
            .ops = {profile.ops().begin(), profile.ops().end()},
            .utilisation_flops = double(bench.utilisation_flops())};
  }
  std::stable_sort(best.ops.begin(), best.ops.end(),
                   [](const Profile::Op& a, const Profile::Op& b) { return a.seconds > b.seconds; });
  return best;
}

std::string text_of(const StepProfile& p, const MachinePeak& peak) {
  HtmlTable table{{"op", "calls", "ms", "of step", "rate", "of peak"}, {}};
  for (const Profile::Op& op : p.ops) table.rows.push_back(row(op, p.step_ms, peak));
  for (const bool product : {true, false}) table.rows.push_back(row(together(p, product), p.step_ms, peak));
  table.rows.push_back(
      {"outside ops", "", fmt::format("{:.2f}", p.outside_ms()), percent(p.outside_ms() / p.step_ms), "", ""});
  const double share = p.utilisation_flops / (p.step_ms * 1e6) / peak.fma_gflop_s;
  const double alone = p.utilisation_flops / (p.ms(true) * 1e6) / peak.fma_gflop_s;
  return table_text(table) +
         fmt::format(
             "a step of {:.1f} ms ({} of the cores' time) at {} of peak; its products alone would be at {}: what is no "
             "product costs {} of the step\n",
             p.step_ms, percent(p.core_share), percent(share), percent(alone), percent(1 - p.ms(true) / p.step_ms));
}

nlohmann::json to_json(const StepProfile& p, const MachinePeak& peak) {
  nlohmann::json json{{"step_ms", p.step_ms},         {"core_share", p.core_share},   {"products_ms", p.ms(true)},
                      {"no_product_ms", p.ms(false)}, {"outside_ms", p.outside_ms()}, {"ops", nlohmann::json::array()}};
  for (const Profile::Op& op : p.ops) json["ops"].push_back(op_json(op, p.step_ms, peak));
  return json;
}

}  // namespace isobath::cli
