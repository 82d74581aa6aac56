#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/open_model.h"
#include "cli/run_text.h"
#include "cli/terminal.h"
#include "train/choices.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/trainer.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, path, choices, delimiter = " ", by = "both", split = "valid";
  std::optional<int64_t> max_documents;
  int64_t context = 0, batch = 8, windows = 0;
  float depth = 0;
  bool json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath eval runs/tiny --path text.txt            loss by top-k and by the causal rule\n"
    "  isobath eval llama-folder --path stories.jsonl --split all --context 512\n"
    "  isobath eval runs/tiny --path text.txt --by causal --depth 0.5   more compute from the same weights\n"
    "  isobath eval runs/tiny --choices questions.jsonl  multiple choice, scored as lm-evaluation-harness does: a line "
    "is\n"
    "      {\"context\": \"The sun rises in the\", \"choices\": [\"east\", \"west\"], \"answer\": 0}";

std::string result_text(const char* name, const Evaluation& e, double bytes_per_token) {
  std::string text = fmt::format("{:<12} loss {:.4f} nats/token, perplexity {:.3f}", name, e.loss, std::exp(e.loss));
  if (bytes_per_token > 0) text += fmt::format(", {:.4f} bits/byte", e.loss / std::log(2.0) / bytes_per_token);
  text += fmt::format("  ({} tokens)\n", e.targets);
  for (const LayerRouting& l : e.layer) text += "  " + layer_line(l) + "\n";
  for (const LayerExperts& l : e.experts) text += "  " + experts_line(l) + "\n";
  return text;
}

nlohmann::json result_json(const Evaluation& e, double bytes_per_token) {
  nlohmann::json json = to_json(e);
  json["perplexity"] = std::exp(e.loss);
  if (bytes_per_token > 0) json["bits_per_byte"] = e.loss / std::log(2.0) / bytes_per_token;
  return json;
}

// What counts as a document's, and how many a window holds: as the run was trained, where state.json tells.
LoaderOptions windows_of(const LoadedModel& loaded, const Arguments& a) {
  const ModelConfig& config = loaded.model->config();
  RunConfig run;
  run.model.routing = config.routing;
  if (fs::exists(loaded.folder / "state.json")) {
    try {
      run = stored_options(loaded.folder);
    } catch (const Error& error) {
      warn(fmt::format("{}; --max-documents is {}", error.what(), a.max_documents.value_or(0)));
    }
  }
  return {.T = a.context > 0 ? a.context : std::min<int64_t>(config.max_position_embeddings, 1024),
          .B = a.batch,
          .capacity_scope = run.model.routing.capacity_scope,
          .attention_scope = run.model.routing.attention_scope,
          .max_documents = a.max_documents.value_or(run.data.max_documents)};
}

struct Way {
  const char* name;
  SelectBy by;
};

// How the rows of this model can be chosen, of the ways that were asked for.
std::vector<Way> ways_of(const ModelConfig& config, const Arguments& a) {
  if (config.routed_blocks() == 0 && !config.experts_differ()) return {{"dense", SelectBy::kTopK}};
  require(a.by != "causal" || config.has_causal_rule(),
          "{} was trained with causal = none and has no causal rule; evaluate it --by topk", a.model);
  std::vector<Way> ways;
  if (a.by != "causal") ways.push_back({"top_k", SelectBy::kTopK});
  if (a.by != "topk" && config.has_causal_rule()) ways.push_back({"causal", SelectBy::kCausal});
  return ways;
}

std::string answers_text(const char* name, const ChoiceResult& r) {
  return fmt::format(
      "{:<12} accuracy {:.4f} +- {:.4f}, by length {:.4f} +- {:.4f}, guessing {:.4f}  ({} questions{})\n", name,
      r.likeliest.share(), r.likeliest.error(), r.per_character.share(), r.per_character.error(), r.chance,
      r.likeliest.of, r.shortened > 0 ? fmt::format(", {} choices with a shortened context", r.shortened) : "");
}

nlohmann::json answers_json(const ChoiceResult& r) {
  return {{"accuracy", r.likeliest.share()},
          {"accuracy_error", r.likeliest.error()},
          {"accuracy_by_length", r.per_character.share()},
          {"accuracy_by_length_error", r.per_character.error()},
          {"guessing", r.chance},
          {"questions", r.likeliest.of},
          {"shortened", r.shortened}};
}

int run_choices(const Arguments& a) {
  const std::vector<ChoiceQuestion> questions = read_choices(a.choices);
  const LoadedModel loaded = open_model(a.model);
  const ModelConfig& config = loaded.model->config();
  const int64_t T = a.context > 0 ? a.context : config.max_position_embeddings;
  Progress progress("question");
  nlohmann::json json;
  for (const Way& way : ways_of(config, a)) {
    const ChoiceResult result =
        answer_choices(*loaded.model, loaded.tokenizer, questions, {.by = way.by, .depth = a.depth},
                       {.T = T, .B = a.batch, .delimiter = a.delimiter},
                       [&](int64_t done, int64_t of) { progress.update(done, of, ""); });
    progress.clear();
    json[way.name] = answers_json(result);
    if (!a.json) std::printf("%s", answers_text(way.name, result).c_str());
  }
  if (a.json) std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

int run_eval(const Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  const ModelConfig& config = loaded.model->config();
  const std::vector<Way> ways = ways_of(config, a);
  // A validation text of its own is taken whole.
  const Corpus corpus = Corpus::load(a.path, loaded.tokenizer, a.split == "all" ? a.path : "");
  const TokenStream& text = a.split == "train" ? corpus.train : corpus.valid;
  const LoaderOptions windows = windows_of(loaded, a);
  require(windows.T <= config.max_position_embeddings, "--context {} is longer than the model's {}", windows.T,
          config.max_position_embeddings);
  Evaluator evaluator(config, text, windows);
  loaded.model->prepare(evaluator.rows());
  const double bytes = text.text_bytes() > 0 ? double(text.text_bytes()) / double(text.size()) : 0;
  Progress progress("window");
  nlohmann::json json;
  for (const Way& way : ways) {
    const Evaluation e = evaluator.run(*loaded.model, {.by = way.by, .depth = a.depth}, a.windows,
                                       [&](int64_t done, int64_t of) { progress.update(done, of, ""); });
    progress.clear();
    json[way.name] = result_json(e, bytes);
    if (!a.json) std::printf("%s", result_text(way.name, e, bytes).c_str());
  }
  if (a.json) std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("eval", "Loss of a model on held-out text");
  command->footer(kFooter);
  command->add_option("model", a->model, "run, checkpoint, or Hugging Face Llama folder")->required();
  CLI::Option* path = command->add_option("--path", a->path, "text: .txt, .jsonl, token shards, or a folder of these");
  CLI::Option* choices =
      command->add_option("--choices", a->choices, "instead: .jsonl of multiple-choice questions")->excludes(path);
  command->add_option("--delimiter", a->delimiter, "between context and choice")->needs(choices);
  command
      ->add_option("--split", a->split,
                   "which part of the text: the one that training holds out, the rest, or all of it")
      ->check(CLI::IsMember({"valid", "train", "all"}))
      ->capture_default_str();
  command->add_option("--by", a->by, "how rows are chosen")
      ->check(CLI::IsMember({"both", "topk", "causal"}))
      ->capture_default_str();
  command->add_option("--depth", a->depth, "added to the causal rule's logit: above 0 more compute, below 0 less")
      ->check(not_nan)
      ->capture_default_str();
  command->add_option("--context", a->context, "tokens per window; 0: the model's, for text at most 1024")
      ->check(not_negative)
      ->capture_default_str();
  command->add_option("--batch", a->batch, "windows at a time; changes speed and memory, never the result")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--windows", a->windows, "only the first so many windows; 0: all")
      ->check(not_negative)
      ->capture_default_str();
  command
      ->add_option("--max-documents", a->max_documents,
                   "per window, with document scopes; 0: max(1, T/64); without: as in training")
      ->check(not_negative);
  add_threads(*command);
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] {
    run = [a] {
      require(!a->path.empty() || !a->choices.empty(),
              "name a text (--path) or questions (--choices); see 'isobath eval --help'");
      return a->choices.empty() ? run_eval(*a) : run_choices(*a);
    };
  });
}

}  // namespace isobath::cli
