// The pages of the lab: one file each, opened offline in any browser.
#pragma once

#include <string>

#include "lab/html.h"
#include "lab/twins.h"

namespace isobath {

// Two twins side by side.
std::string comparison_page(const Comparison& c, const Tokenizer& tokenizer, const std::string& vega = vega_script());

// What one model's routers did with a text.
struct Inspection {
  std::string model, source;  // their names, for the page
  Trace trace;
};
std::string inspection_page(const Inspection& inspection, const Tokenizer& tokenizer,
                            const std::string& vega = vega_script());

// The side-by-side table: what the terminal prints, too. Columns: figure, dense, MoD.
HtmlTable comparison_table(const Comparison& c);

// Sections about who went where: coloured text, map, shares of experts and of routed blocks, router weights, entropy;
// what the trace has of these.
void add_routing(Page& page, const Trace& trace, const Tokenizer& tokenizer);

// How a trace was made, in a sentence: rule, windows.
std::string describe(const Trace& trace);

}  // namespace isobath
