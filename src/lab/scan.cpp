#include "lab/scan.h"

#include "lab/charts.h"
#include "lab/statistics.h"

namespace isobath {
namespace {

std::string percents(const Spread& s) {
  return fmt::format("{:.1f}% ({:.1f} to {:.1f})", 100 * s.median, 100 * s.low, 100 * s.high);
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  return {quantile(values, 0), quantile(values, 0.5), quantile(values, 1)};
}

HtmlTable scan_table(const ScanAxis& axis) {
  HtmlTable table{
      {axis.name, "", "dense ms", "of peak", "MoD ms", "of peak", "time ratio", "FLOP ratio", "time / FLOPs"}, {}};
  for (const ScanPoint& p : axis.points)
    table.rows.push_back({p.value, p.detail, fmt::format("{:.1f}", p.dense_ms.median), percents(p.dense_share),
                          fmt::format("{:.1f}", p.mod_ms.median), percents(p.mod_share),
                          fmt::format("{:.3f}", p.time_ratio.median), fmt::format("{:.3f}", p.flop_ratio),
                          fmt::format("{:.3f}", p.time_ratio.median / p.flop_ratio)});
  return table;
}

std::string scan_page(const StepScan& scan, const std::string& vega) {
  Page page("What a training step costs",
            scan.subtitle + " Below: time MoD / dense, divided by the ratio of FLOPs; dashed: the goal.", vega);
  for (const ScanAxis& axis : scan.axes) {
    page.section("Against " + axis.name, axis.note);
    if (axis.points.empty()) continue;
    const Chart chart = scan_chart(axis);
    page.chart(chart.spec, chart.table);
  }
  return page.finish();
}

}  // namespace isobath
