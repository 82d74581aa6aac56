#include <cstdio>

#include "base/error.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/new_folder.h"
#include "cli/open_model.h"
#include "cli/run_text.h"
#include "cli/terminal.h"
#include "model/names.h"
#include "train/calibrate.h"
#include "train/trainer.h"

namespace isobath::cli {
namespace {

struct Arguments {
  std::string model, path, out, split = "valid";
  std::vector<double> share;
  int64_t context = 0, batch = 8, windows = 0;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath calibrate runs/tiny --path text.txt --out tiny-calibrated       the share of every block is its "
    "capacity\n"
    "  isobath calibrate runs/tiny --path text.txt --out half --share 0.5      one for all, or one per routed block:\n"
    "  isobath calibrate runs/tiny --path text.txt --out rising --share 0.1,0.2,0.3\n"
    "Training and the choice by top-k stay as they are; generation and evaluation by the causal rule change. With "
    "experts\n"
    "the rules of routed blocks are moved; which experts a token gets, or an expert's own rule, stays as it is.";

std::vector<double> targets(const Arguments& a, const ModelConfig& config) {
  const size_t routers = size_t(config.routers());
  std::vector<double> share = a.share;
  if (share.size() == 1) share.assign(routers, share[0]);
  if (share.empty())
    for (int64_t l = 0; l < config.sections(); l++)
      if (const Section section = config.section(l); section.routed) share.push_back(config.capacity(section));
  require(share.size() == routers, "--share has {} values, expected one, or one per router ({})", share.size(),
          routers);
  for (const double s : share) require(s >= 0 && s <= 1, "--share is {}, expected 0 to 1", s);
  return share;
}

// The same model with offsets of 0, or the ones it has.
std::unique_ptr<Model> with_offsets(const Model& model) {
  ModelConfig config = model.config();
  config.routing.router_offset = true;
  auto copy = std::make_unique<Model>(config);
  copy_weights(copy->weights, model.weights);
  return copy;
}

std::string result_text(const Calibration& c) {
  std::string text =
      fmt::format("{:<{}} {:>8} {:>8} {:>8} {:>10}\n", "", c.layer.empty() ? 8 : padded_name(c.layer[0].section).size(),
                  "target", "before", "after", "offset");
  for (const CalibratedLayer& l : c.layer)
    text += fmt::format("{} {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>10.4f}\n", padded_name(l.section), 100 * l.target,
                        100 * l.before, 100 * l.after, l.offset);
  return text + fmt::format("loss by top-k {:.4f}, by the causal rule {:.4f} before and {:.4f} after ({} tokens)\n",
                            c.top_k.loss, c.before.loss, c.after.loss, c.after.targets);
}

int run_calibrate(const Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  const ModelConfig& config = loaded.model->config();
  require_not_quantized(config, a.model, "calibrate");
  require(config.routed_blocks() > 0, "{} {}; there is no rule to calibrate", a.model,
          config.has_experts() ? "has experts but no routed block, and calibrate moves the rules of routed blocks only"
                               : "is a dense model");
  require(config.has_causal_rule(), "{} was trained with causal = none and has no causal rule to calibrate", a.model);
  const std::vector<double> share = targets(a, config);
  NewFolder out(a.out);
  const Corpus corpus = Corpus::load(a.path, loaded.tokenizer, a.split == "all" ? a.path : "");
  const int64_t T = a.context > 0 ? a.context : std::min<int64_t>(config.max_position_embeddings, 1024);
  require(T <= config.max_position_embeddings, "--context {} is longer than the model's {}", T,
          config.max_position_embeddings);

  const std::unique_ptr<Model> model = with_offsets(*loaded.model);
  Evaluator evaluator(model->config(), a.split == "train" ? corpus.train : corpus.valid,
                      {.T = T,
                       .B = a.batch,
                       .capacity_scope = config.routing.capacity_scope,
                       .attention_scope = config.routing.attention_scope});
  model->prepare(evaluator.rows());
  Progress progress("pass");
  const Calibration calibration =
      calibrate(*model, evaluator, share, a.windows, [&](int64_t done, int64_t of) { progress.update(done, of, ""); });
  progress.clear();
  save_model(out.part(), *model, loaded.tokenizer);
  out.appear();
  std::printf("%scalibrated: %s\n", result_text(calibration).c_str(), a.out.c_str());
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("calibrate", "Set the causal rule so that it routes a share of a text");
  command->footer(kFooter);
  command->add_option("model", a->model, "run or checkpoint folder")->required();
  command->add_option("--path", a->path, "held-out text: .txt, .jsonl, token shards, or a folder of these")->required();
  command->add_option("--out", a->out, "folder of the calibrated model")->required();
  command->add_option("--share", a->share, "that the rule routes; one, or one per routed block; without: the capacity")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--split", a->split,
                   "which part of the text: the one that training holds out, the rest, or all of it")
      ->check(CLI::IsMember({"valid", "train", "all"}))
      ->capture_default_str();
  command->add_option("--context", a->context, "tokens per window; 0: the model's, at most 1024")
      ->check(not_negative)
      ->capture_default_str();
  command->add_option("--batch", a->batch, "windows at a time; changes speed and memory, never the result")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--windows", a->windows, "only so many windows, spread evenly over the text; 0: all")
      ->check(not_negative)
      ->capture_default_str();
  add_threads(*command);
  command->callback([a, &run] { run = [a] { return run_calibrate(*a); }; });
}

}  // namespace isobath::cli
