#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/terminal.h"
#include "generate/engine.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> prompts, files;
  Request request;
  EngineOptions options;
  int64_t sequences = 0;
  std::string weights, kv = "f32";
  double kv_mb = 0;
  bool quiet = false, json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath generate runs/tiny --prompt 'In the beginning' --max-tokens 100\n"
    "  isobath generate runs/tiny --prompt 'And' --prompt 'The LORD' --temperature 0    two texts, decoded together\n"
    "  isobath generate runs/tiny --prompt 'In' --depth -0.5      fewer blocks per token from the same weights\n"
    "  isobath generate runs/tiny --prompt 'In' --temperature 0 --speculate 3    the same text: 3 tokens at a time "
    "are\n"
    "                            drafted without the routed blocks and verified in one pass (docs/performance.md)\n"
    "  isobath generate llama-folder --prompt 'Once upon a time' --temperature 0\n"
    "Without --prompt or --prompt-file the prompt is read from standard input when it is not a terminal, else empty.";

std::vector<std::string> read_prompts(const Arguments& a) {
  std::vector<std::string> prompts = a.prompts;
  for (const std::string& file : a.files) prompts.push_back(read_file_or_pipe(file, kPromptBytes));
  if (!prompts.empty()) return prompts;
  if (input_is_terminal()) return {""};
  return {read_stream(STDIN_FILENO, "standard input", kPromptBytes)};
}

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::kEos:
      return "end of text";
    case Finish::kStop:
      return "stop string";
    case Finish::kMaxTokens:
      return "max tokens";
    case Finish::kContext:
      return "context full";
    case Finish::kDeadline:
      return "out of time";
    case Finish::kCancelled:
    case Finish::kNotYet:
      return "interrupted";
  }
  return "";
}

// Of all sections.
struct Totals {
  double run = 0;                         // share of the sections that tokens went through
  int64_t used = 0, dense = 0, held = 0;  // bytes of keys and values
};
Totals totals(const Statistics& s) {
  Totals t;
  for (size_t l = 0; l < s.layer.size(); l++) {
    t.run += s.share_run(l) / double(s.layer.size());
    t.used += s.layer[l].kv_used_bytes;
    t.dense += s.layer[l].kv_dense_bytes;
    t.held += s.layer[l].kv_held_bytes;
  }
  return t;
}

std::string shares_text(const Statistics& s, const ModelConfig& config) {
  std::string text = fmt::format("blocks run {:.1f}%", 100 * totals(s).run);
  const char* before = "  (";
  for (size_t l = 0; l < s.layer.size(); l++) {
    const Section section = config.section(int64_t(l));
    if (!section.routed) continue;
    text += fmt::format("{}{}: {:.1f}%", before, section.name(), 100 * s.share_run(l));
    before = ", ";
  }
  return text + (config.routed_blocks() > 0 ? ")\n" : "\n");
}

std::string no_ops_text(const Statistics& s, const ModelConfig& config) {
  std::string text;
  int64_t rows = 0, no_ops = 0;
  for (size_t l = 0; l < s.layer.size(); l++) {
    const Section section = config.section(int64_t(l));
    if (!section.mlp()) continue;
    rows += s.layer[l].rows;
    no_ops += s.layer[l].no_ops;
    text += fmt::format("{}{}: {:.1f}%", text.empty() ? "" : ", ", section.name(), 100 * s.no_op_share(l));
  }
  return fmt::format("no-op choices {:.1f}%  ({})\n", 100 * double(no_ops) / std::max(1.0, double(rows)), text);
}

std::string speculation_text(const Statistics& s) {
  const Speculation& made = s.speculation;
  const double seconds = s.prefill_seconds + s.decode_seconds + s.draft_seconds;
  return fmt::format(
      "speculation: {} of {} drafted tokens stand ({:.1f}%), {:.2f} of {:.2f} a pass; drafts took {:.0f}% of "
      "the time\n",
      made.accepted, made.drafted, 100 * made.accepted_share(), made.mean_accepted(),
      double(made.drafted) / std::max(1.0, double(made.rounds)), 100 * s.draft_seconds / std::max(1e-9, seconds));
}

std::string statistics_text(const Statistics& s, const ModelConfig& config, std::span<const Result> results) {
  const Totals t = totals(s);
  std::string text = fmt::format("prompt {} tokens, {} tok/s; generated {} tokens, {} tok/s", s.prefill_tokens,
                                 with_letter(s.prefill_tokens_per_second()), s.drawn_tokens,
                                 with_letter(s.decode_tokens_per_second()));
  if (s.shared_tokens > 0) text += fmt::format("; {} prompt tokens shared", s.shared_tokens);
  text += results.size() == 1 ? fmt::format("; ended by: {}\n", finish_name(results[0].finish)) : "\n";
  if (s.draft_passes > 0) text += speculation_text(s);
  text += shares_text(s, config);
  if (config.experts.no_ops > 0) text += no_ops_text(s, config);
  return text + fmt::format("KV cache {}, {:.1f}% of a dense model's {} ({} held)\n", bytes_text(double(t.used)),
                            100 * double(t.used) / std::max(1.0, double(t.dense)), bytes_text(double(t.dense)),
                            bytes_text(double(t.held)));
}

void print_text(std::string_view text) {
  static const bool terminal = output_is_terminal();
  const std::string shown = terminal ? without_controls(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

nlohmann::json speculation_json(const Speculation& s) {
  return {{"rounds", s.rounds},
          {"drafted_tokens", s.drafted},
          {"accepted_tokens", s.accepted},
          {"accepted_share", s.accepted_share()},
          {"mean_accepted", s.mean_accepted()}};
}

nlohmann::json statistics_json(const Statistics& s, const ModelConfig& config) {
  const Totals t = totals(s);
  nlohmann::json json{{"prompt_tokens", s.prefill_tokens},
                      {"prompt_tokens_per_s", s.prefill_tokens_per_second()},
                      {"generated_tokens", s.drawn_tokens},
                      {"generated_tokens_per_s", s.decode_tokens_per_second()},
                      {"blocks_run", t.run},
                      {"kv_bytes", t.used},
                      {"kv_dense_bytes", t.dense},
                      {"kv_held_bytes", t.held},
                      {"routed", nlohmann::json::array()},
                      {"speculation", speculation_json(s.speculation)}};
  json["speculation"]["draft_passes"] = s.draft_passes;
  json["speculation"]["draft_s"] = s.draft_seconds;
  for (size_t l = 0; l < s.layer.size(); l++) {
    const Section section = config.section(int64_t(l));
    const nlohmann::json place{{"block", section.block}, {"part", name_of(section.part)}};
    nlohmann::json& kv = json["kv_by_section"].emplace_back(place);
    kv.update({{"used_bytes", s.layer[l].kv_used_bytes},
               {"held_bytes", s.layer[l].kv_held_bytes},
               {"dense_bytes", s.layer[l].kv_dense_bytes}});
    if (!section.routed) continue;
    json["routed"].emplace_back(place)["share"] = s.share_run(l);
  }
  for (size_t l = 0; l < s.layer.size() && config.experts.no_ops > 0; l++)
    if (const Section section = config.section(int64_t(l)); section.mlp())
      json["no_ops"].push_back({{"block", section.block}, {"share", s.no_op_share(l)}});
  return json;
}

void print_json(const Statistics& statistics, const ModelConfig& config, std::span<const Result> results) {
  nlohmann::json list = nlohmann::json::array();
  for (const Result& r : results)
    list.push_back({{"text", r.text},
                    {"tokens", r.tokens},
                    {"prompt_tokens", r.prompt_tokens},
                    {"finish", finish_name(r.finish)},
                    {"speculation", speculation_json(r.speculation)}});
  const nlohmann::json json{{"texts", std::move(list)}, {"statistics", statistics_json(statistics, config)}};
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

EngineOptions options_of(const Arguments& a, int64_t prompts) {
  EngineOptions options = a.options;
  require(
      options.speculate == 0 || options.draft_depth < options.depth,
      "--draft-depth {} is not below --depth {}: drafts must run fewer blocks; leave --speculate out, or name another",
      options.draft_depth, options.depth);
  options.sequences = a.sequences > 0 ? std::min(a.sequences, prompts) : prompts;
  options.queue = prompts;
  options.max_rows = std::max(options.max_rows, options.sequences * (1 + options.speculate));  // nobody waits for rows
  if (!a.weights.empty()) options.weights = weight_format(a.weights);
  options.kv = *parse_name<Storage>(a.kv);
  options.kv_bytes = int64_t(a.kv_mb * 1e6);
  return options;
}

// Until all are finished or the user has had enough; results by prompt. `stream`: of one request, its prompt, which is
// printed once the request is accepted and is followed by text as it comes.
std::vector<Result> write_texts(Engine& engine, const std::vector<Request>& requests, const std::string* stream) {
  std::vector<Result> results(requests.size());
  std::vector<int64_t> ids;
  for (size_t i = 0; i < requests.size(); i++) {
    Listener listener{.on_finish = [&results, i](const Result& r) { results[i] = r; }};
    if (stream != nullptr)
      listener.on_text = [](std::string_view piece) {
        print_text(piece);
        std::fflush(stdout);
      };
    try {
      ids.push_back(*engine.submit(requests[i], std::move(listener)));
    } catch (const Error& error) {
      fail("prompt {}: {}", i, error.what());
    }
  }
  if (stream != nullptr) print_text(*stream);
  while (!interrupted() && engine.step()) continue;
  for (const int64_t id : ids) engine.cancel(id);
  return results;
}

int run_generate(Arguments& a) {
  warn_of_passed_over(a.model);
  const LoadedModel loaded = load_for_generation(a.model);
  const std::vector<std::string> prompts = read_prompts(a);
  Engine engine(*loaded.model, loaded.tokenizer, options_of(a, int64_t(prompts.size())));
  forget_packed_weights(*loaded.model);
  std::vector<Request> requests;
  for (size_t i = 0; i < prompts.size(); i++) {
    Request request = a.request;
    request.prompt = prompt_tokens(loaded.tokenizer, prompts[i]);
    request.sampling.seed += i;  // texts of one prompt differ
    request.sequence_id = int64_t(i);
    requests.push_back(request);
  }
  catch_signals();
  const bool streaming = prompts.size() == 1 && !a.json;
  const std::vector<Result> results = write_texts(engine, requests, streaming ? prompts.data() : nullptr);
  if (a.json) {
    print_json(engine.statistics(), loaded.model->config(), results);
  } else if (streaming) {
    std::printf("\n");
  } else {
    for (size_t i = 0; i < results.size(); i++) {
      std::printf("--- %zu (%s)\n", i, finish_name(results[i].finish));
      print_text(prompts[i] + results[i].text + '\n');
    }
  }
  if (!a.quiet)
    std::fprintf(stderr, "%s", statistics_text(engine.statistics(), loaded.model->config(), results).c_str());
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  Request& r = a->request;
  CLI::App* command = app.add_subcommand("generate", "Write text with a model");
  command->footer(kFooter);
  command->add_option("model", a->model, "run, checkpoint, or Hugging Face Llama folder")->required();
  command->add_option("--prompt,-p", a->prompts, "text to go on from; may be given more than once")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--prompt-file", a->files, "the same, from files")->check(CLI::ExistingFile);
  command->add_option("--max-tokens,-n", r.max_tokens, "tokens to write at most")->capture_default_str();
  command->add_option("--stop", r.stop, "stop before this text; may be given more than once")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_flag("!--ignore-eos", r.stop_at_eos, "go on behind the end of a text");
  command->add_option("--temperature,-t", r.sampling.temperature, "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--top-k", r.sampling.top_k, "draw from the k most likely; 0: all")->capture_default_str();
  command->add_option("--top-p", r.sampling.top_p, "draw from the most likely that hold this share")
      ->capture_default_str();
  command->add_option("--min-p", r.sampling.min_p, "drop what is less likely than this share of the most likely")
      ->capture_default_str();
  command->add_option("--seed", r.sampling.seed, "of the draws; prompt i uses seed + i")
      ->check(not_negative)
      ->capture_default_str();
  command
      ->add_option("--depth", a->options.depth, "added to the causal rule's logit: above 0 more compute, below 0 less")
      ->capture_default_str();
  CLI::Option* speculate =
      command
          ->add_option("--speculate", a->options.speculate,
                       "tokens that are drafted ahead without the routed blocks, then verified together; 0: none")
          ->check(CLI::Range(int64_t{0}, kMostDrafts))
          ->capture_default_str();
  command->add_option("--draft-depth", a->options.draft_depth, "--depth of drafts; -inf skips every routed block")
      ->needs(speculate)
      ->capture_default_str();
  add_formats(*command, a->weights, a->kv);
  command->add_option("--kv-mb", a->kv_mb, "most megabytes of keys and values; 0: as many as the prompts may need")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--sequences", a->sequences, "texts that are written at once, at most; 0: all")
      ->check(not_negative)
      ->capture_default_str();
  add_threads(*command);
  command->add_flag("--quiet,-q", a->quiet, "no statistics");
  command->add_flag("--json", a->json, "print texts, tokens and statistics as a JSON object");
  command->callback([a, &run] { run = [a] { return run_generate(*a); }; });
}

}  // namespace isobath::cli
