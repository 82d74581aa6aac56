// Texts coloured by depth, for terminals and for what is not one.
#pragma once

#include <string>

#include "lab/trace.h"

namespace isobath::cli {

// never, always, or auto: where standard output is a terminal and NO_COLOR is not set.
bool use_colour(const std::string& when);

// The first `tokens` tokens, on a background that is deeper the more routed blocks a character went through, or the
// more MLPs ran for it (Trace::depth), with a legend. Without colour every line is followed by one with that number
// under each character.
std::string depth_text(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens, bool colour);

// Bars of eight heights: "▁▂▅█▆▂▁".
std::string bars(const std::vector<int64_t>& count);

// A histogram of each routed block's router weights, on one line each.
std::string router_weight_text(const Trace& trace);

}  // namespace isobath::cli
