#include "lab/report.h"

#include <cmath>

#include "base/units.h"
#include "lab/charts.h"
#include "lab/expert_charts.h"
#include "lab/trace_statistics.h"

namespace isobath {
namespace {

constexpr int64_t kPassageTokens = 1536, kMapTokens = 128;
constexpr int64_t kExpertMapTokens = 64;  // room for an expert's number in each cell

// A class per depth, from clear water to the deepest blue; deep ones carry letters of the other kind.
std::string depth_style(const Trace& trace) {
  const int64_t first = trace.shallowest(), last = trace.deepest();
  std::string style = "<style>\n";
  for (int64_t d = first + 1; d <= last; d++) {
    const double alpha = 0.2 + 0.8 * double(d - first) / double(last - first);
    style += fmt::format(".d{} {{ background: rgba(var(--deep), {:.2f}); color: var({}); }}\n", d, alpha,
                         alpha > 0.5 ? "--on-deep" : "--ink");
  }
  return style + "</style>\n";
}

std::string legend(const Trace& trace) {
  std::string out = fmt::format("<div class=\"legend\"><span>{}:</span>",
                                trace.counts_mlps() ? "MLPs that ran for the token, over all blocks"
                                                    : "routed blocks that the token went through");
  for (const int64_t d : legend_depths(trace)) out += fmt::format("<span><i class=\"d{0}\">{0}</i></span>", d);
  return out + "</div>\n";
}

std::string coloured_text(const Trace& trace, const Tokenizer& tokenizer, int64_t tokens) {
  std::string out = "<p class=\"passage\">";
  for (const Piece& piece : pieces_of(trace, tokenizer, tokens)) {
    const std::string depth = trace.counts_mlps() ? fmt::format("MLPs {}", trace.depth(piece.first))
                                                  : "blocks " + trace.blocks_of(piece.first);
    const std::string tip = fmt::format("{}, entropy {:.2f}", depth, trace.entropy[size_t(piece.end - 1)]);
    const bool newline = piece.text == "\n";
    out += fmt::format("<i class=\"d{}\" data-t=\"{}\">{}</i>{}", piece.depth, escape_html(tip),
                       newline ? "\u21B5" : escape_html(piece.text), newline ? "\n" : "");
  }
  return out + "</p>\n";
}

}  // namespace

namespace {

void add_text(Page& page, const Trace& trace, const Tokenizer& tokenizer) {
  const int64_t shown = std::min(kPassageTokens, trace.tokens());
  const bool mlps = trace.counts_mlps();
  page.section(mlps ? "Which token got how many MLPs" : "Which token went how deep",
               fmt::format("{} Hover over a character for its {} and for the entropy of the prediction made there. "
                           "{} of {} tokens are shown.",
                           describe(trace), mlps ? "number" : "blocks", shown, trace.tokens()));
  page.html(depth_style(trace) + legend(trace) + coloured_text(trace, tokenizer, shown));
}

void add_map(Page& page, const Trace& trace, const Tokenizer& tokenizer) {
  const Chart map = token_map(trace, tokenizer, kMapTokens);
  page.section("Tokens and blocks",
               fmt::format("The first {} tokens of that passage, left to right; block 0 is on top. Pale: dense blocks, "
                           "which every token goes through.",
                           std::min(kMapTokens, trace.tokens())));
  page.chart(map.spec, map.table, Page::Numbers::kFolded, "routing-map");
}

void add_expert_map(Page& page, const Trace& trace, const Tokenizer& tokenizer) {
  const Chart map = expert_map(trace, tokenizer, kExpertMapTokens);
  page.section(
      "Tokens, blocks and experts",
      fmt::format("The first {} tokens of that passage, left to right; block 0 is on top. A cell has the number "
                  "and the colour of the expert that its token was given to, of several the first four below "
                  "each other. Without a number: no expert, so no MLP.{}",
                  std::min(kExpertMapTokens, trace.tokens()),
                  trace.layer.empty() ? "" : " Nothing: the token skipped the block."));
  page.chart(map.spec, map.table, Page::Numbers::kFolded, "routing-map");
  page.section("Shares of the experts", "Of the tokens that came to each block's experts.");
  page.html(table_html(expert_shares(trace)));
}

void add_routers(Page& page, const Trace& trace) {
  const Chart shares = routing_shares(trace);
  page.section("Share routed, and agreement of the causal rule with top-k",
               "Training chooses by top-k over the sequence; generation decides for each token alone. Agreement is "
               "measured where top-k chose.");
  page.chart(shares.spec, shares.table, Page::Numbers::kShown, "routing-shares");

  const Chart weights = router_weights(trace);
  page.section(
      "Router weights",
      "How the routers score tokens, less the border of the causal rule: 0 for causal = bce, the threshold for "
      "causal = threshold. A token to the right of the dashed line is routed by these rules.");
  page.chart(weights.spec, weights.table, Page::Numbers::kFolded, "router-weights");
}

void add_entropy(Page& page, const Trace& trace) {
  const Chart entropy = entropy_by_depth(trace);
  const bool mlps = trace.counts_mlps();
  page.section(mlps ? "Entropy against MLPs" : "Entropy against depth",
               fmt::format("Are tokens that {} the ones after which the text is hard to predict? Boxes hold the "
                           "middle half, whiskers 90%. Spearman's rank correlation of {} with entropy: {}; with the "
                           "loss: {}.",
                           mlps ? "get many MLPs" : "go deep", mlps ? "their number" : "depth",
                           text_of(depth_and_entropy(trace)), text_of(depth_and_loss(trace))));
  page.chart(entropy.spec, entropy.table, Page::Numbers::kFolded, "entropy");
}

void add_deep_tokens(Page& page, const Trace& trace, const Tokenizer& tokenizer) {
  constexpr size_t kEnds = 12;
  const std::vector<TokenDepth> tokens = tokens_by_depth(trace);
  if (!tokens.empty()) {
    page.section(
        "Tokens that go deep, and tokens that do not",
        fmt::format("Those that occur ten times or more: the {} deepest and the {} least deep.", kEnds, kEnds));
    page.html(table_html(depth_table(tokens, tokenizer, kEnds)));
  }
  if (trace.layer.empty()) return;
  page.section("Share routed, by place in the window",
               "Top-k looks at a whole sequence and may prefer some places in it; a window begins without context.");
  page.html(table_html(shares_by_place(trace)));
}

}  // namespace

void add_routing(Page& page, const Trace& trace, const Tokenizer& tokenizer) {
  add_text(page, trace, tokenizer);
  trace.experts.empty() ? add_map(page, trace, tokenizer) : add_expert_map(page, trace, tokenizer);
  if (!trace.counts_mlps()) add_routers(page, trace);
  // Two experts for every token, or one, leave nothing to compare.
  if (trace.counts_mlps() && trace.shallowest() == trace.deepest()) return;
  add_entropy(page, trace);
  add_deep_tokens(page, trace, tokenizer);
}

namespace {

std::string samples_html(const Comparison& c) {
  std::string out = "<div class=\"samples\"><h3>dense</h3><h3>MoD</h3>\n";
  for (size_t i = 0; i < std::min(c.dense.samples.size(), c.mod.samples.size()); i++)
    for (const Twin* twin : {&c.dense, &c.mod})
      out += fmt::format("<pre><b>{}</b>{}</pre>\n", escape_html(twin->samples[i].prompt),
                         escape_html(twin->samples[i].text));
  return out + "</div>\n";
}

std::string verdicts_html(const Comparison& c) {
  std::string out = fmt::format("<p class=\"winner\">{}</p>\n<ul class=\"verdicts\">\n", escape_html(winner(c)));
  for (const Verdict& v : judge(c))
    out += fmt::format("<li class=\"{}\"><b>{}</b>{}</li>\n", v.passed ? "pass" : "fail", v.passed ? "PASS" : "FAIL",
                       escape_html(v.text));
  return out + "</ul>\n";
}

}  // namespace

std::string describe(const Trace& trace) {
  if (trace.counts_mlps())
    return fmt::format(
        "Experts are chosen as in {}; the text is read in windows of {} tokens, each of which begins "
        "without context.",
        trace.by == SelectBy::kCausal ? "generation" : "training", trace.window);
  return fmt::format("Routed by the {}; read in windows of {} tokens, each of which begins without context.",
                     trace.by == SelectBy::kCausal ? "causal rule, as in generation" : "top-k choice, as in training",
                     trace.window);
}

HtmlTable comparison_table(const Comparison& c) {
  HtmlTable table{{"", "dense", "MoD"}, {}};
  const auto row = [&](const char* name, auto figure) { table.rows.push_back({name, figure(c.dense), figure(c.mod)}); };
  const auto loss = [](double nats) { return fmt::format("{:.4f}", nats); };
  row("validation loss, top-k (nats/token)", [&](const Twin& t) { return loss(t.evaluation.top_k.loss); });
  row("validation loss, causal rule",
      [&](const Twin& t) { return loss(t.evaluation.causal ? t.evaluation.causal->loss : t.evaluation.top_k.loss); });
  row("training FLOPs", [](const Twin& t) { return with_letter(t.flops); });
  row("FLOPs per token, forward", [](const Twin& t) { return with_letter(t.flops_per_token); });
  row("parameters", [](const Twin& t) { return with_letter(double(t.parameters)); });
  row("steps", [](const Twin& t) { return std::to_string(t.steps); });
  row("tokens seen", [](const Twin& t) { return with_letter(double(t.tokens)); });
  row("training time", [](const Twin& t) { return fmt::format("{:.1f} s", t.training_seconds); });
  row("training tokens/s (median step)", [](const Twin& t) { return with_letter(t.training_tokens_per_s); });
  row("generation tokens/s (one sequence)", [](const Twin& t) { return with_letter(t.generation_tokens_per_s); });
  row("KV bytes per token, planned", [](const Twin& t) { return fmt::format("{:.0f}", t.kv_bytes_planned); });
  row("KV bytes per token, measured", [](const Twin& t) { return fmt::format("{:.0f}", t.kv_bytes_measured); });
  return table;
}

std::string comparison_page(const Comparison& c, const Tokenizer& tokenizer, const std::string& vega) {
  const ModelConfig& model = c.mod.config.model;
  Page page(
      "A dense model and its Mixture-of-Depths twin",
      fmt::format("{} blocks of width {}, context {}, trained on {} with {}FLOPs each, a budget fixed by a "
                  "probe of this machine ({}, threads: {}; {:.0f} s for both). The twin routes {} of its blocks; each "
                  "takes {:.1f}% of the tokens.",
                  model.num_hidden_layers, model.hidden_size, c.mod.config.data.context,
                  fs::path(c.mod.config.data.path).filename().string(), with_letter(c.probe.flops), c.peak.cpu,
                  c.peak.threads, c.probe.dense_seconds + c.probe.mod_seconds, model.routed_blocks(),
                  100 * (c.mod.trace.layer.empty() ? 1 : c.mod.trace.layer[0].capacity)),
      vega);
  page.section("Side by side",
               fmt::format("{} tokens to train on, {} held out. Baselines on the same windows, in nats per token: "
                           "unigram {:.4f}, bigram {:.4f}, trigram {:.4f}.",
                           with_letter(double(c.train_tokens)), with_letter(double(c.valid_tokens)), c.baseline.unigram,
                           c.baseline.bigram, c.baseline.trigram));
  page.html(table_html(comparison_table(c)) + verdicts_html(c));
  const Chart curves = learning_curves(c);
  page.section("Learning curves",
               "Loss against training FLOPs, the same for both. Points: validation text, by top-k. "
               "Thin lines: the training steps.");
  page.chart(curves.spec, curves.table, Page::Numbers::kFolded, "learning-curves");
  add_routing(page, c.mod.trace, tokenizer);
  page.section("Samples", "From the same prompts, with the same random numbers, at temperature 0.7.");
  page.html(samples_html(c));
  return page.finish();
}

std::string inspection_page(const Inspection& inspection, const Tokenizer& tokenizer, const std::string& vega) {
  Page page(inspection.trace.counts_mlps() ? "Which token got which expert" : "Which token went how deep",
            fmt::format("{} tokens of {}, read by {}.", inspection.trace.tokens(), inspection.source, inspection.model),
            vega);
  add_routing(page, inspection.trace, tokenizer);
  return page.finish();
}

}  // namespace isobath
