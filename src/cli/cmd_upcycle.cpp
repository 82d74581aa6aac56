#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/new_folder.h"
#include "cli/open_model.h"
#include "cli/run_text.h"
#include "model/config_unused.h"
#include "train/trainer.h"
#include "train/upcycle.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, out;
  uint64_t seed = 1;
  OptionFlags flags;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath upcycle llama-folder --out llama-mod --capacity 0.125 --every 2\n"
    "  isobath train --from llama-mod --path text.txt --steps 2000 --capacity-anneal 0.5 --out runs/llama-mod\n"
    "The new model computes what the dense one does, by top-k and when it writes text: capacity is 1 until training "
    "lets\n"
    "it fall. Blocks routed whole (topology joint) have the dense model's bits, halves (staggered, attention, mlp) "
    "agree\n"
    "within rounding.";

// A model that starts as the dense one: every row passes its router by a bias of 1.
RunConfig defaults() {
  RunConfig run;
  run.model.routing.router_bias = true;
  return run;
}

int run_upcycle(const Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  require_not_quantized(loaded.model->config(), a.model, "upcycle");
  RunConfig options = defaults();
  a.flags.apply(options);
  check_unused(options.model);
  require(options.model.routing.router_bias,
          "routing.router_bias = false: a bias of 1 is what lets every row in at the start; leave it out");
  NewFolder out(a.out);
  const std::unique_ptr<Model> model = upcycle(*loaded.model, options.model.routing, a.seed);
  save_model(out.part(), *model, loaded.tokenizer);
  out.appear();
  ModelConfig end = model->config();
  end.routing.annealed = 1;
  bool falls = false;
  for (int64_t block = 0; block < end.num_hidden_layers; block++) falls = falls || end.capacity(block) < 1;
  std::printf("%s\nupcycled: %s\ntrain it with: isobath train --from %s%s --path TEXT --steps N\n",
              routing_text(model->config()).c_str(), a.out.c_str(), a.out.c_str(),
              falls ? " --capacity-anneal 0.5" : "");
  return 0;
}

}  // namespace

void add_upcycle(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("upcycle", "Make a Mixture-of-Depths model from a dense one");
  command->footer(kFooter);
  command->add_option("model", a->model, "dense model: run, checkpoint, or Hugging Face Llama folder")->required();
  command->add_option("--out", a->out, "folder of the new model")->required();
  command->add_option("--seed", a->seed, "of the start values of a predictor's first layer")
      ->check(not_negative)
      ->capture_default_str();
  a->flags.add(*command, {"routing"}, defaults());
  command->callback([a, &run] { run = [a] { return run_upcycle(*a); }; });
}

}  // namespace isobath::cli
