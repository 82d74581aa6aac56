// Charts of who was given to which expert.
#pragma once

#include "lab/charts.h"

namespace isobath {

// tokens x blocks of a trace with experts: each cell has the number and the colour of its token's expert; of more than
// one, the first few stand below each other. The table has all of them.
Chart expert_map(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens);

// Share of a block's tokens by expert.
HtmlTable expert_shares(const Trace& trace);

}  // namespace isobath
