// What a training step costs against one property of model or batch at a time, dense and Mixture-of-Depths.
#pragma once

#include <string>
#include <vector>

#include "lab/html.h"

namespace isobath {

struct Spread {
  double low = 0, median = 0, high = 0;
};
Spread spread_of(const std::vector<double>& values);

struct ScanPoint {
  std::string value, detail;                        // "1024", "8 sequences"
  Spread dense_ms, mod_ms, dense_share, mod_share;  // of the fp32 FMA peak
  Spread time_ratio;                                // MoD over dense
  double flop_ratio = 1;
  double limit = 1;  // goal: time ratio over FLOP ratio at most
};
struct ScanAxis {
  std::string name, note;  // "context", "Tokens per sequence, at 8192 tokens a step."
  std::vector<ScanPoint> points;
};
struct StepScan {
  std::string subtitle;  // machine and model
  std::vector<ScanAxis> axes;
};

// A row per point: what the terminal prints, too.
HtmlTable scan_table(const ScanAxis& axis);

std::string scan_page(const StepScan& scan, const std::string& vega = vega_script());

}  // namespace isobath
