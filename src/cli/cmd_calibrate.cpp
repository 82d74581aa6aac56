#include <algorithm>
#include <cmath>
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
  std::vector<double> share, experts_share;
  int64_t context = 0, batch = 8, windows = 0;
};

constexpr const char* kFooter =
    "Examples:\n"
    "  isobath calibrate runs/tiny --path text.txt --out tiny-calibrated       the share of every block is its "
    "capacity\n"
    "  isobath calibrate runs/tiny --path text.txt --out half --share 0.5      one for all, or one per routed block:\n"
    "  isobath calibrate runs/tiny --path text.txt --out rising --share 0.1,0.2,0.3\n"
    "Training and the choice by top-k stay as they are; generation and evaluation by the causal rule change.\n"
    "Experts that choose (experts_choice = expert) have a rule each: it is moved until the expert takes its capacity, "
    "or\n"
    "--share in a model that routes no block, or --experts-share, of the rows that its block lets through. Experts "
    "that\n"
    "tokens choose have none.";

// One for all, or one for each of `count`; none: the capacities.
std::vector<double> spread(const char* flag, std::vector<double> share, size_t count, const char* each,
                           const std::vector<double>& capacities) {
  if (share.size() == 1) share.assign(count, share[0]);
  if (share.empty()) share = capacities;
  require(share.size() == count, "{} has {} values, expected one, or one per {} ({})", flag, share.size(), each, count);
  for (const double s : share) require(s >= 0 && s <= 1, "{} is {}, expected 0 to 1", flag, s);
  return share;
}

CalibrationShares targets(const Arguments& a, const ModelConfig& config) {
  const bool routed = config.routed_blocks() > 0, choose = config.experts_choose();
  require(a.experts_share.empty() || choose, "--experts-share is of experts that choose their rows, and {} has none",
          a.model);
  require(routed || a.share.empty() || a.experts_share.empty(),
          "--share and --experts-share are the same in a model that routes no block; leave one out");
  std::vector<double> capacity;
  for (int64_t l = 0; l < config.sections(); l++)
    if (const Section section = config.section(l); section.routed) capacity.push_back(config.capacity(section));
  CalibrationShares shares;
  if (routed) shares.routed = spread("--share", a.share, capacity.size(), "router", capacity);
  if (!choose) return shares;
  const bool by_share = !routed && a.experts_share.empty();
  const size_t blocks = size_t(config.num_hidden_layers);
  shares.experts = spread(by_share ? "--share" : "--experts-share", by_share ? a.share : a.experts_share, blocks,
                          "block", std::vector<double>(blocks, config.experts.capacity));
  return shares;
}

void require_rule(const ModelConfig& config, const std::string& model) {
  const char* by_tokens =
      "routes no block, and tokens choose its experts in generation as in training (experts_choice = token)";
  require(config.routed_blocks() > 0 || config.experts_choose(), "{} {}; there is no rule to calibrate", model,
          config.has_experts() ? by_tokens : "is a dense model");
  require(config.has_causal_rule(), "{} has no causal rule to calibrate: {}", model, config.why_no_causal_rule());
  require(
      config.routing.annealed == 1,
      "{}: its capacity has not yet fallen to what it shall be, so a rule that takes as much now would take too much "
      "then; train it first (isobath train --from {} --capacity-anneal 0.5), then calibrate",
      model, model);
}

// The same model with offsets of 0, or the ones it has.
std::unique_ptr<Model> with_offsets(const Model& model) {
  ModelConfig config = model.config();
  config.routing.router_offset |= config.routed_blocks() > 0;
  config.experts.offset = config.experts_choose();
  auto copy = std::make_unique<Model>(config);
  copy_weights(copy->weights, model.weights);
  return copy;
}

std::string routed_text(const std::vector<CalibratedLayer>& layers) {
  if (layers.empty()) return "";
  std::string text = fmt::format("{:<{}} {:>8} {:>8} {:>8} {:>10}\n", "", padded_name(layers[0].section).size(),
                                 "target", "before", "after", "offset");
  for (const CalibratedLayer& l : layers)
    text += fmt::format("{} {:>7.2f}% {:>7.2f}% {:>7.2f}% {:>10.4f}\n", padded_name(l.section), 100 * l.target,
                        100 * l.before, 100 * l.after, l.offset);
  return text;
}

// "3.1 to 97.2%": of a block's experts, the least and the most.
std::string share_range(const LayerExperts& l) {
  if (l.rows == 0) return "no rows";
  const auto [least, most] = std::minmax_element(l.expert_rows.begin(), l.expert_rows.end());
  return fmt::format("{:.2f} to {:.2f}%", 100 * double(*least) / double(l.rows), 100 * double(*most) / double(l.rows));
}

std::string experts_text(const std::vector<CalibratedExperts>& blocks) {
  if (blocks.empty()) return "";
  std::string text = fmt::format("{:<9} {:>8} {:>17} {:>17}   {}\n", "experts", "target", "before", "after", "offsets");
  for (const CalibratedExperts& b : blocks) {
    const auto [least, most] = std::minmax_element(b.offset.begin(), b.offset.end());
    text += fmt::format("block {:>3} {:>7.2f}% {:>17} {:>17}   {:.4f} to {:.4f}\n", b.block, 100 * b.target,
                        share_range(b.before), share_range(b.after), *least, *most);
  }
  return text;
}

std::string result_text(const Calibration& c) {
  return routed_text(c.layer) + experts_text(c.experts) +
         fmt::format("loss by top-k {:.4f}, by the causal rule {:.4f} before and {:.4f} after ({} tokens)\n",
                     c.top_k.loss, c.before.loss, c.after.loss, c.after.targets);
}

// Of n tokens of which a share p is to be taken, other texts take p by some sqrt(p (1 - p) / n) more or less.
void warn_of_little_text(const CalibrationShares& shares, int64_t tokens) {
  constexpr double kMostError = 0.1;
  for (const std::vector<double>* list : {&shares.routed, &shares.experts})
    for (const double p : *list)
      if (const double error = std::sqrt((1 - p) / (p * double(tokens))); p > 0 && error > kMostError)
        return warn(
            fmt::format("{} tokens say little of a share of {:g}%: on other text it may well be {:.0f}% of that off; "
                        "give more text",
                        tokens, 100 * p, 100 * error));
}

int run_calibrate(const Arguments& a) {
  const LoadedModel loaded = open_model(a.model);
  const ModelConfig& config = loaded.model->config();
  require_not_quantized(config, a.model, "calibrate");
  require_rule(config, a.model);
  const CalibrationShares shares = targets(a, config);
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
      calibrate(*model, evaluator, shares, a.windows, [&](int64_t done, int64_t of) { progress.update(done, of, ""); });
  progress.clear();
  warn_of_little_text(shares, calibration.after.targets);
  save_model(out.part(), *model, loaded.tokenizer);
  out.appear();
  std::printf("%scalibrated: %s\n", result_text(calibration).c_str(), a.out.c_str());
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command =
      app.add_subcommand("calibrate", "Set the causal rule so that blocks and experts take a share of a text");
  command->footer(kFooter);
  command->add_option("model", a->model, "run or checkpoint folder")->required();
  command->add_option("--path", a->path, "held-out text: .txt, .jsonl, token shards, or a folder of these")->required();
  command->add_option("--out", a->out, "folder of the calibrated model")->required();
  command
      ->add_option("--share", a->share,
                   "that the rule routes; one, or one per routed block (of a model without, per block, for its "
                   "experts); without: the capacity")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      ->add_option("--experts-share", a->experts_share,
                   "that each expert takes of its block's rows; one, or one per block; without: experts_capacity")
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
