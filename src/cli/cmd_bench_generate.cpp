#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/generation_bench.h"
#include "model/config_unused.h"

namespace isobath::cli {
namespace {

struct Arguments {
  OptionFlags flags;
  int64_t context = 512, tokens = 64, vocab_size = 257, speculate = 0;
  std::vector<int64_t> batches{1, 4, 16, 64};
  std::string model;
  std::string weights, kv = "f32";
  bool json = false, check = false, profile = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath bench generate                             width 768, 16 blocks, batches of 1, 4, 16 and 64\n"
    "  isobath bench generate --weights int8 --batch 1\n"
    "  isobath bench generate --batch 64 --kv bf16 --json\n"
    "  isobath bench generate --batch 1 --profile         and where the time of a pass goes\n"
    "  isobath bench generate --batch 1 --speculate 3     with drafts without the routed blocks, in turns\n"
    "  isobath bench generate --model runs/tiny --batch 1 --context 128    the weights of a folder, alone\n"
    "Weights are random; the routed blocks choose at random, 12.5% of the tokens, as router = random does. Dense and\n"
    "Mixture-of-Depths passes take turns. The memory bound is the time that reading the weights of the blocks that "
    "ran,\n"
    "keys and values would take at the speed measured in the same run.";

RunConfig defaults() {
  RunConfig run;
  run.model.hidden_size = 768;
  run.model.num_hidden_layers = 16;
  run.model.num_attention_heads = 12;
  run.model.routing.topology = Topology::kJoint;
  run.model.routing.router = Router::kRandom;
  run.model.routing.causal = Causal::kNone;
  return run;
}

GenerationSetup setup_of(const Arguments& a) {
  require(a.model.empty() || !a.flags.any_given(),
          "--model names a model that is there, and sizes or routing of another are given beside it; leave one out");
  RunConfig run = defaults();
  a.flags.apply(run);
  check_unused(run.model);
  run.model.vocab_size = a.vocab_size;
  resolve(run.model, 2 * a.context);
  require(run.model.routed_blocks() > 0, "bench compares a routed model with its dense twin; give another topology");
  require(a.tokens >= 2 && a.tokens < a.context, "tokens is {}, expected 2 to {} (under the context)", a.tokens,
          a.context - 1);
  GenerationSetup setup{.model = run.model, .context = a.context, .tokens = a.tokens};
  for (const int64_t batch : a.batches) {
    require(batch >= 1, "a batch of {} sequences, expected 1 or more", batch);
    setup.sequences = std::max(setup.sequences, batch);
  }
  if (!a.weights.empty()) setup.weights = weight_format(a.weights);
  setup.kv = *parse_name<Storage>(a.kv);
  setup.speculate = a.speculate;
  return setup;
}

int run_generate(const Arguments& a) {
  const GenerationReport report = bench_generation(setup_of(a), a.batches, a.model);
  nlohmann::json json = to_json(report, a.profile);
  std::string text = text_of(report, a.profile);
  add_goals(text, json, goals_of(report));
  std::printf("%s%s", a.json ? json.dump(2).c_str() : text.c_str(), a.json ? "\n" : "");
  return a.check ? check_code(json) : 0;
}

}  // namespace

void add_bench_generate(CLI::App& bench, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = bench.add_subcommand("generate", "Writing text, dense and Mixture-of-Depths, in one run");
  command->footer(kFooter);
  CLI::Option* model =
      command->add_option("--model", a->model,
                          "run, checkpoint or model folder: its model is timed, rather than a pair of the sizes given");
  a->flags.add(*command, {"model", "routing"}, defaults());
  command->add_option("--context", a->context, "tokens of a sequence at the end")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--tokens", a->tokens, "of them, written; the rest is the prompt")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--vocab-size", a->vocab_size, "entries of the vocabulary, 257 or more")
      ->check(CLI::Range(int64_t{257}, int64_t{1} << 30))
      ->capture_default_str()
      ->excludes(model);
  command->add_option("--batch", a->batches, "sequences at once; one or more numbers")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--speculate", a->speculate,
                   "also the routed model with so many tokens drafted without its routed blocks, then verified")
      ->check(CLI::Range(int64_t{0}, kMostDrafts))
      ->capture_default_str();
  add_formats(*command, a->weights, a->kv);
  add_threads(*command);
  command->add_flag("--profile", a->profile, "where the time of each model's quickest pass goes, op by op");
  command->add_flag("--check", a->check, "exit with 1 unless the goals hold, with 2 if there are none for this size");
  command->add_flag("--json", a->json, "print a JSON object");
  command->callback([a, &run] { run = [a] { return run_generate(*a); }; });
}

}  // namespace isobath::cli
