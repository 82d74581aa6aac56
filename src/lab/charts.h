// Vega specifications of the lab's charts, and each chart's numbers as a table. Colours come from the page.
#pragma once

#include "lab/html.h"
#include "lab/scan.h"
#include "lab/twins.h"

namespace isobath {

struct Chart {
  nlohmann::json spec;
  HtmlTable table;
};

Chart learning_curves(const Comparison& c);  // loss against training FLOPs
Chart routing_shares(const Trace& trace);    // share per layer against C/3, C, 3C; agreement in the table
Chart router_weights(const Trace& trace);    // a histogram per routed block
Chart entropy_by_depth(const Trace& trace);  // quartiles of entropy for each depth
Chart token_map(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens);  // tokens x blocks
Chart scan_chart(const ScanAxis& axis);  // shares of peak, and time over FLOPs of MoD against dense

}  // namespace isobath
