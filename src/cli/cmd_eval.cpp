#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/held_out.h"
#include "cli/open_model.h"
#include "cli/run_text.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, by = "both";
  HeldOutFlags text;
  float depth = 0;
  bool json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath eval runs/tiny --path text.txt            loss by top-k and by the causal rule\n"
    "  isobath eval llama-folder --path stories.jsonl --split all --context 512\n"
    "  isobath eval runs/tiny --path text.txt --by causal --depth 0.5   more compute from the same weights";

std::string result_text(const char* name, const Evaluation& e, double bytes_per_token) {
  std::string text = loss_text(name, e, bytes_per_token);
  for (const LayerRouting& l : e.layer) text += "  " + layer_line(l) + "\n";
  for (const LayerExperts& l : e.experts) text += "  " + experts_line(l) + "\n";
  return text;
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
  a->text.add_path(*command)->required();
  command->add_option("--by", a->by, "how rows are chosen")
      ->check(CLI::IsMember({"both", "topk", "causal"}))
      ->capture_default_str();
  command->add_option("--depth", a->depth, "added to the causal rule's logit: above 0 more compute, below 0 less")
      ->check(not_nan)
      ->capture_default_str();
  a->text.add_windows(*command);
  add_threads(*command);
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] { run = [a] { return run_eval(*a); }; });
}

}  // namespace isobath::cli
