#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/depth_text.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/run_text.h"
#include "cli/table_text.h"
#include "cli/terminal.h"
#include "generate/request.h"
#include "lab/report.h"
#include "lab/trace_statistics.h"
#include "train/metrics.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, text, file, html, by, colour = "auto";
  float depth = 0;
  bool json = false;
  CLI::Option *text_option = nullptr, *depth_option = nullptr;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath inspect runs/tiny --text 'In the beginning God created the heaven and the earth.'\n"
    "  isobath inspect runs/tiny --file chapter.txt --html chapter.html     a page for the browser as well\n"
    "  isobath inspect runs/tiny --by topk <chapter.txt                     as chosen in training\n"
    "A text longer than the model's context is read in windows, each of which begins without context.";

std::string read_text(const Arguments& a) {
  if (a.text_option->count() > 0) return a.text;
  if (!a.file.empty()) return read_file_or_pipe(a.file, kPromptBytes);
  require(!input_is_terminal(), "inspect: no text; give --text, --file, or text on standard input");
  return read_stream(STDIN_FILENO, "standard input", kPromptBytes);
}

Selection selection(const Arguments& a, const ModelConfig& config) {
  Selection how{.by = SelectBy::kCausal, .depth = a.depth};
  if (a.by == "topk" || (a.by.empty() && !config.has_causal_rule())) how.by = SelectBy::kTopK;
  require(how.by == SelectBy::kCausal || a.depth_option->count() == 0,
          "inspect: --depth moves the causal rule, and tokens are chosen by top-k here; leave one of them out");
  return how;
}

void print_statistics(const LoadedModel& loaded, const Trace& trace) {
  constexpr size_t kEnds = 6;
  const bool mlps = trace.counts_mlps();
  const char* depth = mlps ? "number of MLPs" : "depth";
  const RankCorrelation entropy = depth_and_entropy(trace);
  if (!std::isfinite(entropy.value)) {
    std::printf("\n%s and entropy of the next token: no correlation, since every token %s\n", depth,
                mlps ? "got equally many" : "went equally deep");
    return;
  }
  std::printf("\nSpearman's rank correlation of %s over %lld tokens, with the entropy of the next token: %s\n", depth,
              static_cast<long long>(trace.tokens()), text_of(entropy).c_str());
  if (const RankCorrelation loss = depth_and_loss(trace); std::isfinite(loss.value))  // too few tokens have one
    std::printf("  with the loss there: %s\n", text_of(loss).c_str());
  if (const std::vector<TokenDepth> tokens = tokens_by_depth(trace); !tokens.empty())
    std::printf("\nthe deepest and the least deep tokens, of those that occur ten times\n%s\n",
                table_text(depth_table(tokens, loaded.tokenizer, kEnds)).c_str());
}

nlohmann::json to_json(const RankCorrelation& c) {  // null where there is none
  nlohmann::json json{{"value", c.value}};
  if (c.interval) json["interval"] = {c.interval->low, c.interval->high};
  return json;
}

nlohmann::json depths_json(const Trace& trace, const Tokenizer& tokenizer) {
  nlohmann::json list = nlohmann::json::array();
  for (const TokenDepth& t : tokens_by_depth(trace))
    list.push_back({{"token", t.token},
                    {"text", tokenizer.decode(std::array{t.token})},
                    {"count", t.count},
                    {"depth", t.depth},
                    {"entropy", t.entropy},
                    {"loss", t.loss}});
  return list;
}

void print_trace(const LoadedModel& loaded, const Trace& trace, const Arguments& a) {
  const bool mlps = trace.counts_mlps();
  std::printf("%s\n", depth_text(trace, loaded.tokenizer, trace.tokens(), use_colour(a.colour)).c_str());
  std::printf("%s\n\n", describe(trace).c_str());
  if (mlps)
    std::printf("%lld tokens, %s\n", static_cast<long long>(trace.tokens()),
                routing_text(loaded.model->config()).c_str());
  for (const TracedLayer& layer : trace.layer) std::printf("%s\n", layer_line(layer.routing).c_str());
  for (const TracedExperts& e : trace.experts) std::printf("%s\n", experts_line(e.sum).c_str());
  if (!mlps) std::printf("\nrouter weights\n%s", router_weight_text(trace).c_str());
  print_statistics(loaded, trace);
}

// Per token the outputs of the expert router that it was given to: experts, or a no-op, whose number is no expert's;
// null where the block left the token out.
nlohmann::json given_json(const TracedExperts& e) {
  nlohmann::json list = nlohmann::json::array();
  for (size_t n = 0; n < e.here.size(); n++) {
    list.push_back(e.here[n] ? nlohmann::json::array() : nlohmann::json());
    for (const uint8_t output : e.given(int64_t(n))) list.back().push_back(output);
  }
  return list;
}

nlohmann::json experts_json(const Trace& trace) {
  nlohmann::json list = nlohmann::json::array();
  for (const TracedExperts& e : trace.experts) {
    list.push_back(to_json(e.sum));
    list.back()["given"] = given_json(e);
  }
  return list;
}

// Pieces are whole characters, of one token or more; the lists of a layer have an entry per token. "depth" says what
// that of the pieces counts.
nlohmann::json trace_json(const Trace& trace, const Tokenizer& tokenizer) {
  nlohmann::json pieces = nlohmann::json::array(), layers = nlohmann::json::array();
  for (const Piece& p : pieces_of(trace, tokenizer, trace.tokens()))
    pieces.push_back({{"text", p.text}, {"first", p.first}, {"end", p.end}, {"depth", p.depth}});
  for (const TracedLayer& l : trace.layer) {
    layers.push_back(to_json(l.routing));
    layers.back().update({{"capacity", l.capacity}, {"border", l.border}, {"routed", l.routed}, {"score", l.score}});
  }
  return {{"by", trace.by == SelectBy::kCausal ? "causal" : "topk"},
          {"blocks", trace.sections.back().block + 1},
          {"window", trace.window},
          {"depth", trace.counts_mlps() ? "mlps" : "routed"},
          {"tokens", trace.token},
          {"entropy", trace.entropy},
          {"pieces", std::move(pieces)},
          {"layers", std::move(layers)},
          {"experts", experts_json(trace)},
          {"loss", trace.loss},
          {"depth_and_entropy", to_json(depth_and_entropy(trace))},
          {"depth_and_loss", to_json(depth_and_loss(trace))},
          {"by_depth", depths_json(trace, tokenizer)}};
}

void print_json(const nlohmann::json& json) {
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

int run_inspect(const Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  const ModelConfig& config = loaded.model->config();
  if (config.routed_blocks() == 0 && !config.has_experts()) {
    if (a.json) {
      print_json({{"blocks", config.num_hidden_layers}, {"layers", nlohmann::json::array()}});
      return 0;
    }
    std::printf("%s: a dense model, nothing is routed: every token goes through all %lld blocks\n", a.model.c_str(),
                static_cast<long long>(config.num_hidden_layers));
    return 0;
  }
  const Selection how = selection(a, config);
  const std::string text = read_text(a);
  require(!text.empty(), "inspect: the text is empty; give --text, --file, or text on standard input");
  if (!a.html.empty()) require_writable(parent_folder(a.html));
  loaded.model->prepare(trace_rows(*loaded.model));
  const Inspection inspection{a.model, a.file.empty() ? "text" : a.file,
                              trace_text(*loaded.model, prompt_tokens(loaded.tokenizer, text), how)};
  if (a.json)
    print_json(trace_json(inspection.trace, loaded.tokenizer));
  else
    print_trace(loaded, inspection.trace, a);
  if (a.html.empty()) return 0;
  replace_file(a.html, inspection_page(inspection, loaded.tokenizer));
  if (!a.json) std::printf("page: %s\n", a.html.c_str());
  return 0;
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("inspect", "Show which token of a text went through which block, and to which expert");
  command->footer(kFooter);
  command->add_option("model", a->model, "run or checkpoint folder")->required();
  a->text_option = command->add_option("--text", a->text, "the text to read");
  command->add_option("--file", a->file, "a file that holds it; without both, standard input")
      ->check(CLI::ExistingFile)
      ->excludes(a->text_option);
  command->add_option("--html", a->html, "write a page with the coloured text and charts to this file");
  command->add_option("--by", a->by, "choose tokens by the causal rule (as in generation; the default) or by top-k")
      ->check(CLI::IsMember({"causal", "topk"}));
  a->depth_option =
      command->add_option("--depth", a->depth, "added to the causal rule's logit: above 0 deeper")->check(not_nan);
  command->add_option("--color", a->colour, "colours in the terminal; without them, numbers below the text")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  add_threads(*command);
  command->add_flag("--json", a->json, "print a JSON object: pieces of the text, and what each router did");
  command->callback([a, &run] { run = [a] { return run_inspect(*a); }; });
}

}  // namespace isobath::cli
