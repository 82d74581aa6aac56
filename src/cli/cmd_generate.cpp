#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/terminal.h"
#include "generate/generate.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model;
  std::vector<std::string> prompts, files;
  Request request;
  GeneratorOptions options;
  bool quiet = false, json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath generate runs/tiny --prompt 'In the beginning' --max-tokens 100\n"
    "  isobath generate runs/tiny --prompt 'And' --prompt 'The LORD' --temperature 0    two texts, decoded together\n"
    "  isobath generate runs/tiny --prompt 'In' --depth -0.5      fewer blocks per token from the same weights\n"
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
    case Finish::kNotYet:
      return "interrupted";
  }
  return "";
}

// Of all sequences and blocks.
struct Totals {
  int64_t drawn = 0;                          // tokens
  double run = 0;                             // share of the blocks that tokens went through
  int64_t used = 0, dense = 0, reserved = 0;  // bytes of keys and values
};
Totals totals(const Generator& generator, const Statistics& s) {
  Totals t;
  for (int64_t i = 0; i < generator.sequences(); i++) t.drawn += generator.result(i).drawn();
  for (size_t l = 0; l < s.layer.size(); l++) {
    t.run += s.share_run(l) / double(s.layer.size());
    t.used += s.layer[l].kv_used_bytes;
    t.dense += s.layer[l].kv_dense_bytes;
    t.reserved += s.layer[l].kv_reserved_bytes;
  }
  return t;
}

std::string statistics_text(const Generator& generator, const ModelConfig& config) {
  const Statistics s = generator.statistics();
  const auto [drawn, run, used, dense, reserved] = totals(generator, s);
  std::string text =
      fmt::format("prompt {} tokens, {} tok/s; generated {} tokens, {} tok/s", s.prefill_tokens,
                  with_letter(s.prefill_tokens_per_second()), drawn, with_letter(s.decode_tokens_per_second()));
  text += generator.sequences() == 1 ? fmt::format("; ended by: {}\n", finish_name(generator.result(0).finish)) : "\n";
  text += fmt::format("blocks run {:.1f}%", 100 * run);
  if (config.routed_blocks() > 0) {
    const char* before = "  (";
    for (size_t l = 0; l < s.layer.size(); l++) {
      const Section section = config.section(int64_t(l));
      if (!section.routed) continue;
      text += fmt::format("{}{}: {:.1f}%", before, section.name(), 100 * s.share_run(l));
      before = ", ";
    }
    text += ")";
  }
  return text + fmt::format("\nKV cache {}, {:.1f}% of a dense model's {} ({} held)\n", bytes_text(double(used)),
                            100 * double(used) / std::max(1.0, double(dense)), bytes_text(double(dense)),
                            bytes_text(double(reserved)));
}

void print_text(std::string_view text) {
  static const bool terminal = output_is_terminal();
  const std::string shown = terminal ? without_controls(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
}

nlohmann::json statistics_json(const Generator& generator, const ModelConfig& config) {
  const Statistics s = generator.statistics();
  const Totals t = totals(generator, s);
  nlohmann::json json{{"prompt_tokens", s.prefill_tokens},
                      {"prompt_tokens_per_s", s.prefill_tokens_per_second()},
                      {"generated_tokens", t.drawn},
                      {"generated_tokens_per_s", s.decode_tokens_per_second()},
                      {"blocks_run", t.run},
                      {"kv_bytes", t.used},
                      {"kv_dense_bytes", t.dense},
                      {"kv_held_bytes", t.reserved},
                      {"routed", nlohmann::json::array()}};
  for (size_t l = 0; l < s.layer.size(); l++)
    if (const Section section = config.section(int64_t(l)); section.routed)
      json["routed"].push_back({{"block", section.block}, {"part", name_of(section.part)}, {"share", s.share_run(l)}});
  return json;
}

void print_json(const Generator& generator, const ModelConfig& config) {
  nlohmann::json list = nlohmann::json::array();
  for (int64_t s = 0; s < generator.sequences(); s++) {
    const Result& r = generator.result(s);
    list.push_back({{"text", r.text},
                    {"tokens", r.tokens},
                    {"prompt_tokens", r.prompt_tokens},
                    {"finish", finish_name(r.finish)}});
  }
  const nlohmann::json json{{"texts", std::move(list)}, {"statistics", statistics_json(generator, config)}};
  std::printf("%s\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
}

int run_generate(Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  const std::vector<std::string> prompts = read_prompts(a);
  a.options.sequences = int64_t(prompts.size());
  Generator generator(*loaded.model, loaded.tokenizer, a.options);
  std::vector<Request> requests;
  for (size_t i = 0; i < prompts.size(); i++) {
    Request request = a.request;
    request.prompt = prompt_tokens(loaded.tokenizer, prompts[i]);
    request.sampling.seed += i;  // texts of one prompt differ
    request.id = int64_t(i);
    requests.push_back(request);
  }
  catch_signals();
  const bool streaming = prompts.size() == 1 && !a.json;
  generator.begin(requests, [&](int64_t, std::string_view piece) {
    if (!streaming) return;
    print_text(piece);
    std::fflush(stdout);
  });
  if (streaming) print_text(prompts[0]);
  while (generator.step() && !interrupted()) continue;
  if (a.json) {
    print_json(generator, loaded.model->config());
  } else if (streaming) {
    std::printf("\n");
  } else {
    for (int64_t s = 0; s < generator.sequences(); s++) {
      std::printf("--- %lld (%s)\n", static_cast<long long>(s), finish_name(generator.result(s).finish));
      print_text(prompts[size_t(s)] + generator.result(s).text + '\n');
    }
  }
  if (!a.quiet) std::fprintf(stderr, "%s", statistics_text(generator, loaded.model->config()).c_str());
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
  add_threads(*command);
  command->add_flag("--quiet,-q", a->quiet, "no statistics");
  command->add_flag("--json", a->json, "print texts, tokens and statistics as a JSON object");
  command->callback([a, &run] { run = [a] { return run_generate(*a); }; });
}

}  // namespace isobath::cli
