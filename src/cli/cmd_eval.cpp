#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/held_out.h"
#include "cli/open_model.h"
#include "cli/run_text.h"
#include "cli/terminal.h"
#include "train/choices.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, choices, delimiter = " ", by = "both";
  HeldOutFlags text;
  float depth = 0;
  bool json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath eval runs/tiny --path text.txt            loss by top-k and by the causal rule\n"
    "  isobath eval llama-folder --path stories.jsonl --split all --context 512\n"
    "  isobath eval runs/tiny --path text.txt --by causal --depth 0.5   more compute from the same weights\n"
    "  isobath eval runs/tiny --choices questions.jsonl  multiple choice, by the formulas of lm-evaluation-harness: a "
    "line is\n"
    "      {\"context\": \"The sun rises in the\", \"choices\": [\"east\", \"west\"], \"answer\": 0}";

std::string result_text(const char* name, const Evaluation& e, double bytes_per_token) {
  std::string text = loss_text(name, e, bytes_per_token);
  for (const LayerRouting& l : e.layer) text += "  " + layer_line(l) + "\n";
  for (const LayerExperts& l : e.experts) text += "  " + experts_line(l) + "\n";
  return text;
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
  const int64_t T = a.text.context > 0 ? a.text.context : config.max_position_embeddings;
  require(T <= config.max_position_embeddings, "--context {} is longer than the model's {}", T,
          config.max_position_embeddings);
  Progress progress("question");
  nlohmann::json json;
  for (const Way& way : ways_of(config, a.by, a.model)) {
    const ChoiceResult result = answer_choices(
        *loaded.model, loaded.tokenizer, questions, {.by = way.by, .depth = a.depth},
        {.T = T, .B = a.text.batch, .delimiter = a.delimiter},
        [&](int64_t done, int64_t of) { progress.update(done, of, ""); }, interrupted);
    progress.clear();
    json[way.name] = answers_json(result);
    if (!a.json) std::printf("%s", answers_text(way.name, result).c_str());
  }
  if (a.json) std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

int run_eval(const Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  const std::vector<Way> ways = ways_of(loaded.model->config(), a.by, a.model);
  HeldOut text(loaded, a.text);
  nlohmann::json json;
  for (const Way& way : ways) {
    const Evaluation e = text.run(*loaded.model, {.by = way.by, .depth = a.depth});
    json[way.name] = loss_json(e, text.bytes_per_token());
    if (!a.json) std::printf("%s", result_text(way.name, e, text.bytes_per_token()).c_str());
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
  CLI::Option* path = a->text.add_path(*command);
  CLI::Option* choices =
      command->add_option("--choices", a->choices, "instead: .jsonl of multiple-choice questions")->excludes(path);
  command->add_option("--delimiter", a->delimiter, "between context and choice")->needs(choices);
  command->add_option("--by", a->by, "how rows are chosen")
      ->check(CLI::IsMember({"both", "topk", "causal"}))
      ->capture_default_str();
  command->add_option("--depth", a->depth, "added to the causal rule's logit: above 0 more compute, below 0 less")
      ->check(not_nan)
      ->capture_default_str();
  a->text.add_windows(*command);
  add_threads(*command);
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] {
    run = [a] {
      require(a->choices.empty() || (a->text.windows == 0 && !a->text.max_documents && a->text.split == "valid"),
              "--windows, --split and --max-documents are of texts (--path), not of questions (--choices)");
      require(!a->text.path.empty() || !a->choices.empty(),
              "name a text (--path) or questions (--choices); see 'isobath eval --help'");
      return a->choices.empty() ? run_eval(*a) : run_choices(*a);
    };
  });
}

}  // namespace isobath::cli
