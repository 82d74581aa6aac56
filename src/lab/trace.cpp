#include "lab/trace.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/network.h"
#include "text/loader.h"

namespace isobath {
namespace {

void record(Trace& trace, const ModelConfig& config, const Activations& acts, int64_t rows) {
  for (TracedLayer& layer : trace.layer) {
    const RouterActs& r = acts.section[size_t(layer.section.index)].router;
    layer.score.insert(layer.score.end(), r.score.data, r.score.data + rows);
    const size_t first = layer.routed.size();
    layer.routed.resize(first + size_t(rows), 0);
    for (int64_t s = 0; s < r.list.rows; s++) layer.routed[first + size_t(r.list.index[s])] = 1;
    layer.routing.routed += r.list.rows;
    layer.routing.rows += rows;
  }
  trace.entropy.insert(trace.entropy.end(), acts.entropy.data, acts.entropy.data + rows);
}

// Where scores are parted by the causal rule; an infinite border parts nothing and shows nothing.
double border_of(const Model& model, const Section& section) {
  const RouterWeights& router = model.weights.weights().section[size_t(section.index)].router;
  double border = router.threshold.empty() ? 0 : double(router.threshold[0]);
  if (!router.offset.empty() && !model.config().has_predictor()) border -= double(router.offset[0]);
  return std::isfinite(border) ? border : 0;
}

}  // namespace

int64_t Trace::depth(int64_t n) const {
  int64_t depth = 0;
  for (const TracedLayer& l : layer) depth += l.routed[size_t(n)];
  return depth;
}

std::string Trace::blocks_of(int64_t n) const {
  std::string text;
  for (const TracedLayer& l : layer)
    if (l.routed[size_t(n)]) text += (text.empty() ? "" : ", ") + l.section.label();
  return text.empty() ? "none" : text;
}

double Trace::depth_entropy_correlation() const {
  std::vector<double> depths;
  for (int64_t n = 0; n < tokens(); n++) depths.push_back(double(depth(n)));
  return spearman(depths, std::vector<double>(entropy.begin(), entropy.end()));
}

int64_t trace_rows(const Model& model) { return model.config().max_position_embeddings; }

Trace trace_text(const Model& model, std::span<const int32_t> tokens, const Selection& how) {
  require(!tokens.empty(), "trace: the text is empty");
  const ModelConfig& config = model.config();
  const int64_t T = trace_rows(model);
  Trace trace{.by = how.by, .sections{}, .window = T, .token{}, .entropy{}, .layer{}, .experts{}};
  trace.token.assign(tokens.begin(), tokens.end());
  for (int64_t l = 0; l < config.sections(); l++) trace.sections.push_back(config.section(l));
  for (const Section& section : trace.sections)
    if (section.routed)
      trace.layer.push_back({.section = section,
                             .capacity = config.capacity(section),
                             .routed{},
                             .score{},
                             .border = border_of(model, section),
                             .routing = {.section = section}});

  // One token more than is looked at: the last row's target, whatever it is.
  std::vector<std::vector<int32_t>> documents{trace.token};
  Loader loader(stream_of(documents, tokens.back()), {.T = T, .B = 1});
  Activations acts(config, {.sequences = 1, .T = T}, Purpose::kForward);
  std::vector<LayerRouting> by_top_k;
  for (int64_t w = 0; w < loader.eval_sequences(); w++) {
    const Batch& batch = loader.eval(w, 1);
    forward_blocks(model.weights.weights(), *model.products, acts, config, batch, how);
    forward_loss(model.weights.weights(), *model.products, acts, config, batch);
    record(trace, config, acts, batch.rows());
    add_experts(trace.experts, config, acts);
    if (how.by == SelectBy::kCausal) {
      Selection top_k = how;
      top_k.by = SelectBy::kTopK;
      forward_blocks(model.weights.weights(), *model.products, acts, config, batch, top_k);
    }
    add_routing(by_top_k, config, acts, batch.rows());
  }
  for (size_t i = 0; i < trace.layer.size(); i++) trace.layer[i].routing.agreement = by_top_k[i].agreement;
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
