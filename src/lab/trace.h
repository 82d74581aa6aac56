// Which token went through which block: what the routers did with a text, token by token.
//
//   LoadedModel loaded = load_model("runs/demo/mod");
//   loaded.model->prepare(trace_rows(*loaded.model));
//   Trace trace = trace_text(*loaded.model, loaded.tokenizer.encode(text), {.by = SelectBy::kCausal});
//   trace.depth(n)                                    // routed blocks that token n went through
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lab/statistics.h"
#include "model/model.h"
#include "model/selection.h"
#include "text/corpus.h"
#include "text/tokenizer.h"
#include "train/evaluate.h"

namespace isobath {

struct TracedLayer {
  Section section = {};
  double capacity = 0;
  std::vector<uint8_t> routed;  // (N) whether the token went through
  std::vector<float> score;     // (N) router weight r
  double border = 0;            // the weight above which a rule that reads weights routes
  LayerRouting routing;         // share of this choice; agreement of the causal rule with top-k
  double share() const { return routing.share(); }
};

// What the experts of a block did, token by token: the outputs of the expert router that each was given to.
struct TracedExperts {
  Section section = {};           // that the MLP is in
  LayerExperts sum = {};          // shares of this choice; agreement of the causal rule with that of training
  std::vector<uint8_t> here;      // (N) whether the token came to the experts: a routed block leaves tokens out
  std::vector<int64_t> begin{0};  // (N+1)
  std::vector<uint8_t> output;    // of token n from begin[n] to begin[n+1]: experts, ascending; or one no-op

  std::span<const uint8_t> given(int64_t n) const;
  int64_t experts() const { return int64_t(sum.expert_rows.size()); }  // outputs from this number on are no-ops
  int64_t mlps(int64_t n) const;                                       // experts that token n was given to
};

struct Trace {
  SelectBy by = SelectBy::kTopK;
  std::vector<Section> sections;       // of the model, the dense ones too
  int64_t window = 0;                  // tokens that were read together
  std::vector<int32_t> token;          // (N)
  std::vector<float> entropy;          // (N) of the prediction of the next token, nats
  std::vector<float> loss;             // (N) of that prediction, nats; the last token has none: NaN
  std::vector<TracedLayer> layer;      // routed sections
  std::vector<TracedExperts> experts;  // of the blocks, if they have experts

  int64_t tokens() const { return int64_t(token.size()); }
  // What a model that routes nothing but has experts counts in place of routed sections: MLPs.
  bool counts_mlps() const { return layer.empty() && !experts.empty(); }
  int64_t depth(int64_t n) const;          // routed sections that token n went through, or MLPs that ran for it
  int64_t deepest() const;                 // routed sections there are, or the most MLPs that ran for a token
  int64_t shallowest() const;              // 0, or the fewest MLPs
  std::string blocks_of(int64_t n) const;  // routed ones: "1, 5 attention", or "none"
};

// Reads the tokens in windows of max_position_embeddings, each of which begins without context, as in evaluation.
// With the causal choice the text is read a second time by top-k for the agreement. The model must be prepared for
// lists of trace_rows(model) rows. Throws Error for an empty text, and if the causal choice is asked of a model
// without a causal rule.
Trace trace_text(const Model& model, std::span<const int32_t> tokens, const Selection& how);
int64_t trace_rows(const Model& model);

// Up to 16,384 tokens of a text from the start of a document in its middle, so that the passage begins like one.
std::vector<int32_t> passage_of(const TokenStream& text);

// Depths for a legend: from the shallowest to the deepest, of many every second, third, ...
std::vector<int64_t> legend_depths(const Trace& trace);

// Text as it can be shown: tokens [first, end) that make up whole characters together.
struct Piece {
  std::string text;
  int64_t first = 0, end = 0;
  int64_t depth = 0;  // the largest among its tokens
};
std::vector<Piece> pieces_of(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens);

}  // namespace isobath
