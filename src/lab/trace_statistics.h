// Which tokens go deep, and whether those are the ones after which the text is hard to predict.
#pragma once

#include <string>
#include <vector>

#include "lab/html.h"
#include "lab/trace.h"

namespace isobath {

// Of a token's depth (Trace::depth) with the entropy of the prediction made there, and with its loss, which the last
// token has none of. Intervals are by resampling blocks of 64 tokens.
RankCorrelation depth_and_entropy(const Trace& trace);
RankCorrelation depth_and_loss(const Trace& trace);
std::string text_of(const RankCorrelation& correlation);  // "-0.274 (95% interval -0.292 to -0.255)"

// Means over the occurrences of a token.
struct TokenDepth {
  int32_t token = 0;
  int64_t count = 0;
  double depth = 0, entropy = 0, loss = 0;
};
// The deepest first; tokens of equal depth by their number. Those that occur fewer than `least` times say too little.
std::vector<TokenDepth> tokens_by_depth(const Trace& trace, int64_t least = 10);

// Rows of them as they can be shown: the first `ends`, the last `ends`; all if there are no more.
HtmlTable depth_table(const std::vector<TokenDepth>& tokens, const Tokenizer& tokenizer, size_t ends);

// Shares of each routed section by place in the window, in at most eight parts of it; empty where nothing is routed.
HtmlTable shares_by_place(const Trace& trace);

}  // namespace isobath
