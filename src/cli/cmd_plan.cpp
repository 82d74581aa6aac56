#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/parallel.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/run_text.h"
#include "cli/terminal.h"
#include "model/plan_table.h"
#include "text/tokenizer.h"
#include "train/budget.h"
#include "train/start_from.h"
#include "train/train_only.h"
#include "train/trainer.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string config;
  int64_t vocab_size = 0;
  OptionFlags flags;
  bool json = false;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath plan configs/tiny.toml\n"
    "  isobath plan configs/paper-220m.toml --capacity 0.5\n"
    "Model FLOPs count every matrix product and attention in full (budgets, isoFLOP curves), training as 3 x forward;\n"
    "executed FLOPs are what the kernels run in training, forward and backward. Memory is of one micro-batch.\n"
    "Blocks that cost the same share a row, which says what each of them costs.";

struct Group {
  std::vector<int64_t> blocks;
  PlanRow row;  // of each of them
};

// Sections that cost the same, in the order of their first.
std::vector<Group> groups(const std::vector<PlanRow>& rows) {
  std::vector<Group> all;
  for (const PlanRow& row : rows) {
    PlanRow same = row;
    const auto found = std::find_if(all.begin(), all.end(), [&](const Group& g) {
      same.section.index = g.row.section.index, same.section.block = g.row.section.block;
      return same == g.row;
    });
    if (found == all.end())
      all.push_back({{row.section.block}, row});
    else
      found->blocks.push_back(row.section.block);
  }
  return all;
}

// "0-5", "0, 2, 4", "1, 3, ..., 23"
std::string list_text(const std::vector<int64_t>& blocks) {
  const size_t n = blocks.size();
  const int64_t step = n > 1 ? blocks[1] - blocks[0] : 0;
  bool even = n > 2;
  for (size_t i = 1; i < n; i++) even = even && blocks[i] - blocks[i - 1] == step;
  if (even && step == 1) return fmt::format("{}-{}", blocks.front(), blocks.back());
  if (even && n > 4) return fmt::format("{}, {}, ..., {}", blocks[0], blocks[1], blocks.back());
  return fmt::format("{}", fmt::join(blocks, ", "));
}

std::string row_text(const std::string& name, const PlanRow& r) {
  return fmt::format("{:<24} {:>10} {:>12} {:>12} {:>12} {:>12} {:>10}\n", name, with_letter(double(r.parameters)),
                     with_letter(r.model_flops), with_letter(r.training_flops()), with_letter(r.executed_flops),
                     bytes_text(double(r.activation_bytes)), bytes_text(r.kv_bytes));
}

std::string table_text(const char* title, const ModelConfig& config, const PlanTable& table) {
  std::string text = fmt::format("{}: {}\n", title, routing_text(config));
  text += fmt::format("{:<24} {:>10} {:>25} {:>12}\n", "", "", "model FLOPs per token", "executed");
  text += fmt::format("{:<24} {:>10} {:>12} {:>12} {:>12} {:>12} {:>10}\n", "in each block", "parameters", "forward",
                      "training", "training", "activations", "KV/token");
  for (const auto& [blocks, row] : groups(table.section)) {
    std::string name = fmt::format("block{} {}", blocks.size() > 1 ? "s" : "", list_text(blocks));
    if (row.section.part != Part::kBlock) name += std::string(" ") + name_of(row.section.part);
    if (row.section.routed) name += fmt::format(" {:.4g}%", 100 * row.capacity);
    text += row_text(name, row);
  }
  text += row_text("head, embedding", table.rest);
  text += row_text("in all", table.total);
  text += fmt::format("training: {} weights, gradients, moments + {} packed + {} activations = {}\n",
                      bytes_text(double(table.weight_bytes)), bytes_text(double(table.packed_bytes)),
                      bytes_text(double(table.total.activation_bytes)), bytes_text(double(table.training_bytes())));
  text += fmt::format("evaluation during training: {} of buffers more\n", bytes_text(double(table.evaluation_bytes)));
  return text;
}

nlohmann::json to_json(const PlanTable& t) {
  const auto row = [](const PlanRow& r) {
    return nlohmann::json{{"parameters", r.parameters},
                          {"model_flops_per_token", r.model_flops},
                          {"model_training_flops_per_token", r.training_flops()},
                          {"executed_training_flops_per_token", r.executed_flops},
                          {"activation_bytes", r.activation_bytes},
                          {"kv_bytes_per_token", r.kv_bytes},
                          {"capacity", r.capacity}};
  };
  nlohmann::json json{{"total", row(t.total)},
                      {"training_bytes", t.training_bytes()},
                      {"evaluation_bytes", t.evaluation_bytes},
                      {"blocks", nlohmann::json::array()}};
  for (const PlanRow& r : t.section) {
    json["blocks"].push_back(row(r));
    json["blocks"].back()["block"] = r.section.block;
    if (r.section.part != Part::kBlock) json["blocks"].back()["part"] = name_of(r.section.part);
  }
  return json;
}

int run_plan(const Arguments& a) {
  RunConfig run = given_options(a.config, a.flags);
  ModelConfig& config = run.model;
  check_ranges(run);
  config.vocab_size = a.vocab_size > 0 ? a.vocab_size : Tokenizer::load(run.data.tokenizer).vocab_size();
  if (!run.train.from.empty()) take_vocabulary(config, run.train.from, config.vocab_size);
  config.routing.annealed = 1;
  resolve(config, run.data.context);
  if (run.train.threads > 0) set_thread_count(int(run.train.threads));  // the products' scratch follows it
  const int64_t micro = run.data.micro_batch > 0 ? run.data.micro_batch : run.data.batch;
  const BatchLimits limits = limits_of({.T = run.data.context,
                                        .B = micro,
                                        .capacity_scope = config.routing.capacity_scope,
                                        .attention_scope = config.routing.attention_scope,
                                        .max_documents = run.data.max_documents});
  const ModelConfig dense = dense_twin(config);
  const PlanTable table = plan_table(config, limits, run.train.memory),
                  twin = plan_table(dense, limits, run.train.memory);
  if (a.json) {
    std::printf("%s\n", nlohmann::json{{"model", to_json(table)}, {"dense_twin", to_json(twin)}}.dump(2).c_str());
    return 0;
  }
  std::printf("%lld x %lld tokens per micro-batch, vocabulary %lld\n\n%s\n", static_cast<long long>(micro),
              static_cast<long long>(run.data.context), static_cast<long long>(config.vocab_size),
              table_text("model", config, table).c_str());
  if (config.routed_blocks() > 0 || config.has_experts()) {
    std::printf("%s\n", table_text("dense twin", dense, twin).c_str());
    const auto share = [](double part, double whole) { return fmt::format("{:.1f}%", 100 * part / whole); };
    std::printf("of the dense twin: FLOPs %s, activations %s, KV %s\n",
                share(table.total.model_flops, twin.total.model_flops).c_str(),
                share(double(table.total.activation_bytes), double(twin.total.activation_bytes)).c_str(),
                share(table.total.kv_bytes, twin.total.kv_bytes).c_str());
  }
  if (!run.train.train_only.empty())
    std::printf("trained: %s of %s parameters (%s)\n",
                with_letter(double(count_trained(config, run.train.train_only))).c_str(),
                with_letter(double(count_weights(config))).c_str(), run.train.train_only.c_str());
  if (run.train.capacity_anneal > 0 && config.routed_blocks() > 0) {
    ModelConfig start = config;
    start.routing.annealed = 0;
    std::printf("training while capacity falls from 1: %s, for lists of all rows\n",
                bytes_text(double(plan_table(start, limits, run.train.memory).training_bytes())).c_str());
  }
  const int64_t B = run.data.batch, T = run.data.context;
  if (run.train.flops > 0) {
    const bool anneals = run.train.capacity_anneal > 0 && config.routed_blocks() > 0;
    const Budget budget = anneals ? budget_of(run, nullptr) : plan_budget(config, B, T, run.train.flops);
    const Budget other = plan_budget(dense, B, T, run.train.flops);
    std::printf("a budget of %.4g FLOPs: %lld steps, %s tokens (dense twin: %lld steps)\n", run.train.flops,
                static_cast<long long>(budget.steps), with_letter(double(budget.sequences(B)) * double(T)).c_str(),
                static_cast<long long>(other.steps));
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("plan", "What a model costs, beside its dense twin; nothing is trained");
  command->footer(kFooter);
  command->add_option("config", a->config, "TOML file")->required();
  command->add_option("--vocab-size", a->vocab_size, "instead of the tokenizer's")->check(above_0);
  command->add_flag("--json", a->json, "print a JSON object");
  a->flags.add(*command, {"model", "routing", "experts", "data", "train"});
  command->callback([a, &run] { run = [a] { return run_plan(*a); }; });
}

}  // namespace isobath::cli
