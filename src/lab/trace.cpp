#include "lab/trace.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/network.h"
#include "ops/expert_choice.h"
#include "text/loader.h"

namespace isobath {
namespace {

static_assert(kMostExpertOutputs <= 256, "an output's number is a byte");

// Of one window of `rows` tokens, of which the list came to the experts.
void record_experts(TracedExperts& e, const SectionActs& b, int64_t rows) {
  const I32& place = b.experts.to.place;
  const size_t first = e.here.size();
  e.here.resize(first + size_t(rows), 0);
  int64_t next = 0;  // in the list, whose rows ascend
  for (int64_t n = 0; n < rows; n++) {
    if (next < b.list.rows && (b.list.index.empty() || b.list.index[next] == n)) {
      const int32_t* at = place.row(next++);
      e.here[first + size_t(n)] = 1;
      for (int64_t o = 0; o < place.cols(); o++) {
        const bool no_op = o >= e.experts() && at[o] == kAddsNothing;  // of an expert the same means: it was full
        if (at[o] >= 0 || no_op) e.output.push_back(uint8_t(o));
      }
    }
    e.begin.push_back(int64_t(e.output.size()));
  }
}

void record(Trace& trace, const Activations& acts, int64_t rows) {
  for (TracedLayer& layer : trace.layer) {
    const RouterActs& r = acts.section[size_t(layer.section.index)].router;
    layer.score.insert(layer.score.end(), r.score.data, r.score.data + rows);
    const size_t first = layer.routed.size();
    layer.routed.resize(first + size_t(rows), 0);
    for (int64_t s = 0; s < r.list.rows; s++) layer.routed[first + size_t(r.list.index[s])] = 1;
    layer.routing.routed += r.list.rows;
    layer.routing.rows += rows;
  }
  for (TracedExperts& e : trace.experts) record_experts(e, acts.section[size_t(e.section.index)], rows);
  trace.entropy.insert(trace.entropy.end(), acts.entropy.data, acts.entropy.data + rows);
  trace.loss.insert(trace.loss.end(), acts.loss.data, acts.loss.data + rows);
}

// Where scores are parted by the causal rule; an infinite border parts nothing and shows nothing.
double border_of(const Model& model, const Section& section) {
  const RouterWeights& router = model.weights.weights().section[size_t(section.index)].router;
  double border = router.threshold.empty() ? 0 : double(router.threshold[0]);
  if (!router.offset.empty() && !model.config().has_predictor()) border -= double(router.offset[0]);
  return std::isfinite(border) ? border : 0;
}

Trace unread_trace(const Model& model, std::span<const int32_t> tokens, SelectBy by) {
  const ModelConfig& config = model.config();
  Trace trace{.by = by, .sections{}, .window = trace_rows(model), .token{}, .entropy{}, .loss{}, .layer{}, .experts{}};
  trace.token.assign(tokens.begin(), tokens.end());
  for (int64_t l = 0; l < config.sections(); l++) {
    const Section section = config.section(l);
    trace.sections.push_back(section);
    if (section.mlp() && config.has_experts()) {
      trace.experts.push_back({.section = section, .here{}, .output{}});
      trace.experts.back().sum.expert_rows.resize(size_t(config.experts.experts));
    }
    if (section.routed)
      trace.layer.push_back({.section = section,
                             .capacity = config.capacity(section),
                             .routed{},
                             .score{},
                             .border = border_of(model, section),
                             .routing = {.section = section}});
  }
  return trace;
}

}  // namespace

std::span<const uint8_t> TracedExperts::given(int64_t n) const {
  return {output.data() + begin[size_t(n)], size_t(begin[size_t(n) + 1] - begin[size_t(n)])};
}

int64_t TracedExperts::mlps(int64_t n) const {
  const auto all = given(n);
  return std::count_if(all.begin(), all.end(), [&](uint8_t output) { return output < experts(); });
}

int64_t Trace::depth(int64_t n) const {
  int64_t depth = 0;
  for (const TracedLayer& l : layer) depth += l.routed[size_t(n)];
  if (counts_mlps())
    for (const TracedExperts& e : experts) depth += e.mlps(n);
  return depth;
}

int64_t Trace::deepest() const {
  int64_t most = int64_t(layer.size());
  if (counts_mlps())
    for (int64_t n = 0; n < tokens(); n++) most = std::max(most, depth(n));
  return most;
}

int64_t Trace::shallowest() const {
  if (!counts_mlps()) return 0;
  int64_t least = depth(0);
  for (int64_t n = 1; n < tokens(); n++) least = std::min(least, depth(n));
  return least;
}

std::string Trace::blocks_of(int64_t n) const {
  std::string text;
  for (const TracedLayer& l : layer)
    if (l.routed[size_t(n)]) text += (text.empty() ? "" : ", ") + l.section.label();
  return text.empty() ? "none" : text;
}

int64_t trace_rows(const Model& model) { return model.config().max_position_embeddings; }

Trace trace_text(const Model& model, std::span<const int32_t> tokens, const Selection& how) {
  require(!tokens.empty(), "trace: the text is empty");
  const ModelConfig& config = model.config();
  require(how.by == SelectBy::kTopK || config.has_causal_rule(), "this model has no causal rule: {}; or look --by topk",
          config.why_no_causal_rule());
  const int64_t T = trace_rows(model);
  Trace trace = unread_trace(model, tokens, how.by);

  // One token more than is looked at: the last row's target, whatever it is.
  std::vector<std::vector<int32_t>> documents{trace.token};
  Loader loader(stream_of(documents, tokens.back()), {.T = T, .B = 1});
  Activations acts(config, {.sequences = 1, .T = T}, Purpose::kForward);
  std::vector<LayerRouting> by_top_k;
  std::vector<LayerExperts> experts, experts_by_top_k;
  for (int64_t w = 0; w < loader.eval_sequences(); w++) {
    const Batch& batch = loader.eval(w, 1);
    forward_blocks(model.weights.weights(), *model.products, acts, config, batch, how);
    forward_loss(model.weights.weights(), *model.products, acts, config, batch);
    record(trace, acts, batch.rows());
    add_experts(experts, config, acts);
    if (how.by == SelectBy::kCausal) {
      Selection top_k = how;
      top_k.by = SelectBy::kTopK;
      forward_blocks(model.weights.weights(), *model.products, acts, config, batch, top_k);
    }
    add_routing(by_top_k, config, acts, batch.rows());
    add_experts(experts_by_top_k, config, acts);
  }
  trace.loss.back() = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < trace.layer.size(); i++) trace.layer[i].routing.agreement = by_top_k[i].agreement;
  for (size_t i = 0; i < trace.experts.size(); i++) {
    trace.experts[i].sum = experts[i];
    trace.experts[i].sum.agreement = experts_by_top_k[i].agreement;
  }
  return trace;
}

std::vector<int32_t> passage_of(const TokenStream& text) {
  constexpr int64_t kMost = 16384;
  const int64_t most = std::min(kMost, text.size());
  int64_t begin = text.document_begin(text.documents() / 2);
  if (begin + most > text.size()) begin = text.document_begin(0);
  std::vector<int32_t> tokens(size_t(std::min(most, text.size() - begin)));
  text.read(begin, tokens);
  return tokens;
}

std::vector<int64_t> legend_depths(const Trace& trace) {
  constexpr int64_t kEntries = 16;
  const int64_t first = trace.shallowest(), last = trace.deepest();
  std::vector<int64_t> depths;
  for (int64_t d = first; d <= last; d += 1 + (last - first) / kEntries) depths.push_back(d);
  return depths;
}

std::vector<Piece> pieces_of(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens) {
  std::vector<Piece> pieces;
  Decoder decoder(tokenizer);
  Piece piece;
  const int64_t count = std::min(tokens, trace.tokens());
  for (int64_t n = 0; n < count; n++) {
    piece.text += decoder.push(trace.token[size_t(n)]);
    piece.depth = std::max(piece.depth, trace.depth(n));
    piece.end = n + 1;
    if (n + 1 == count) piece.text += decoder.finish();
    if (piece.text.empty()) continue;
    pieces.push_back(piece);
    piece = {.text{}, .first = n + 1, .end = n + 1, .depth = 0};
  }
  return pieces;
}

}  // namespace isobath
