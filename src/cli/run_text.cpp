#include "cli/run_text.h"

#include <algorithm>

#include "cli/terminal.h"
#include "train/budget.h"
#include "train/train_only.h"

namespace isobath::cli {
namespace {

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }

// "2nd", "3rd"; "1st" as "one"
std::string ordinal(int64_t n) {
  const bool teen = n / 10 % 10 == 1;
  const char* ending = teen || n % 10 == 0 || n % 10 > 3 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : "rd";
  return n == 1 ? "one" : fmt::format("{}{}", n, ending);
}

// Over all layers: the sums, not the mean of the shares.
LayerRouting together(const std::vector<LayerRouting>& layers) {
  LayerRouting all;
  for (const LayerRouting& l : layers) {
    all.routed += l.routed;
    all.rows += l.rows;
    all.dropped += l.dropped;
    all.agreement += l.agreement;
  }
  return all;
}

// "experts: loss 1.02, busiest 1.3x, skipped 12.1%, dropped 0.3%": over all layers, but for the busiest expert
std::string experts_summary(const std::vector<LayerExperts>& layers, double loss) {
  LayerExperts all;
  double busiest = 0;
  for (const LayerExperts& l : layers) {
    all += l;
    busiest = std::max(busiest, l.busiest());
  }
  std::string text = fmt::format("experts: loss {:.3f}, busiest {:.2f}x", loss, busiest);
  if (all.no_ops > 0) text += fmt::format(", skipped {}", percent(all.no_op_share()));
  if (all.dropped > 0) text += fmt::format(", dropped {}", percent(all.dropped_share()));
  if (all.agreement.rows > 0) text += fmt::format(", rule {} right", percent(all.agreement.accuracy()));
  return text;
}

// base: what "always skip" would score.
std::string agreement_text(const Agreement& a) {
  return fmt::format("accuracy {} (base {})  precision {}  recall {}", percent(a.accuracy()), percent(a.base_rate()),
                     a.said > 0 ? percent(a.precision()) : "-", a.chosen > 0 ? percent(a.recall()) : "-");
}

// The rule that a model generates by.
const char* rule_name(const RoutingConfig& r) {
  switch (r.router) {
    case Router::kLearned:
      return r.choice == Choice::kToken ? "token choice" : name_of(r.causal);
    case Router::kRandom:
      return "quantile";
    case Router::kFirst:
    case Router::kSpaced:
      return "position";
  }
  return "";
}

}  // namespace

namespace {

// "8 experts, 2 per token"
std::string experts_text(const ExpertsConfig& e) {
  if (e.choice == Choice::kExpert)
    return fmt::format("{} experts, each of {} of the rows, causal rule {}", e.experts, percent(e.capacity),
                       name_of(e.causal));
  std::string text = fmt::format("{} experts, {} per token", e.experts, e.per_token);
  if (e.no_ops > 0) text += fmt::format(", {} {}", e.no_ops, e.no_ops == 1 ? "no-op" : "no-ops");
  if (e.no_op_capacity > 0) text += fmt::format(" for at most {} of the rows", percent(e.no_op_capacity));
  if (e.capacity_factor > 0) text += fmt::format(", capacity factor {:.4g}", e.capacity_factor);
  return text;
}

}  // namespace

std::string routing_text(const ModelConfig& c) {
  const std::string experts = c.has_experts() ? experts_text(c.experts) : "";
  if (c.routed_blocks() == 0) return c.has_experts() ? "dense attention, " + experts : "dense";
  const RoutingConfig& r = c.routing;
  std::string blocks = fmt::format("every {} of {} blocks", ordinal(r.every), c.num_hidden_layers);
  if (r.start >= 0) blocks += fmt::format(" from block {}", r.start);
  if (!r.blocks.empty()) blocks = fmt::format("blocks {}", fmt::join(r.blocks, " "));
  std::string capacity = percent(r.capacity[0]);
  for (size_t i = 1; i < r.capacity.size(); i++) capacity += " " + percent(r.capacity[i]);
  if (r.capacity_schedule != CapacitySchedule::kConstant)
    capacity += fmt::format(" to {} ({})", percent(r.capacity_last), name_of(r.capacity_schedule));
  if (r.annealed != 1) capacity += fmt::format(" ({} of the way from 1)", percent(r.annealed));
  return fmt::format("{}, {}, capacity {}, {} gate, {} router, causal rule {}{}", name_of(r.topology), blocks, capacity,
                     name_of(r.gate), name_of(r.router), rule_name(r), experts.empty() ? "" : "; " + experts);
}

std::string banner(const Trainer& trainer, const Corpus& corpus, const MachinePeak& peak) {
  const RunConfig& c = trainer.config();
  ModelConfig m = c.model;
  m.routing.annealed = 1;  // what it comes to, wherever it is
  const ModelFlops flops = model_flops(m, 1, c.data.context), dense = model_flops(dense_twin(m), 1, c.data.context);
  const double T = double(c.data.context);
  std::string text;
  std::string trained;
  if (!c.train.train_only.empty())
    trained =
        fmt::format(" ({} trained: {})", with_letter(double(count_trained(m, c.train.train_only))), c.train.train_only);
  text += fmt::format("model    {} parameters{}: width {}, {} blocks, {} heads of {}, MLP {}, vocabulary {}\n",
                      with_letter(double(count_weights(m))), trained, m.hidden_size, m.num_hidden_layers,
                      m.num_attention_heads, m.head_dim, m.intermediate_size, m.vocab_size);
  text += fmt::format("routing  {}\n", routing_text(m));
  if (const double steps = anneal_of(c.train, trainer.budget().steps).steps; steps > 0 && m.routed_blocks() > 0)
    text += fmt::format("         capacity falls from 1 over {:.0f} steps\n", steps);
  text +=
      fmt::format("compute  {} FLOPs per token forward ({} of the dense twin)\n",
                  with_letter(double(flops.forward()) / T), percent(double(flops.forward()) / double(dense.forward())));
  text += fmt::format("text     {} tokens to train on, {} to validate on\n", with_letter(double(corpus.train.size())),
                      with_letter(double(corpus.valid.size())));
  if (const double seen = trainer.share_of_text(); seen < 1)
    text += fmt::format(
        "         a pass sees {} of them: sequences end at their last whole document "
        "(--max-documents)\n",
        percent(seen));
  const double tokens = double(trainer.budget().sequences(c.data.batch)) * T;
  text += fmt::format("budget   {} steps of {} x {} tokens = {} tokens ({:.3g} passes), {:.4g} FLOPs\n",
                      trainer.budget().steps, c.data.batch, c.data.context, with_letter(tokens),
                      tokens / double(corpus.train.size()), trainer.budget().flops);
  text += fmt::format("machine  {}, threads: {}, {}, {:.0f} GFLOP/s fp32 at most; {} planned\n", peak.cpu, peak.threads,
                      peak.simd, peak.fma_gflop_s, bytes_text(double(trainer.planned_bytes())));
  if (trainer.steps_done() > 0) text += fmt::format("resumed  at step {}\n", trainer.steps_done());
  return text;
}

std::string step_line(const StepRecord& r) {
  // Most wanted first: a narrow terminal cuts the end.
  std::string text =
      fmt::format("loss {:.4f}  {} tok/s  {:.0f}% of peak", r.loss, with_letter(r.tokens_per_s), 100 * r.peak_share);
  const LayerRouting all = together(r.layer);
  if (all.rows > 0) {
    text += fmt::format("  routed {}", percent(all.share()));
    if (all.dropped > 0) text += fmt::format(" ({} dropped)", percent(double(all.dropped) / double(all.rows)));
    if (all.agreement.rows > 0) text += "  " + agreement_text(all.agreement);
  }
  if (!r.experts.empty()) text += "  " + experts_summary(r.experts, r.expert_loss);
  return text + fmt::format("  norm {:.2f}  lr {:.2e}", r.norm.model, r.learning_rate);
}

std::string experts_line(const LayerExperts& l) {
  std::string text = fmt::format("block {:>3}  experts", l.block);
  for (size_t e = 0; e < l.expert_rows.size(); e++) text += fmt::format(" {:>6}", percent(l.share(e)));
  if (l.no_ops > 0) text += fmt::format("  skipped {:>6}", percent(l.no_op_share()));
  if (l.dropped > 0) text += fmt::format("  dropped {:>6}", percent(l.dropped_share()));
  if (l.agreement.rows > 0) text += "  " + agreement_text(l.agreement);
  return text;
}

std::string padded_name(const Section& section) {
  return fmt::format("{:<{}}", section.name(), section.part == Part::kBlock ? 8 : 18);
}

std::string layer_line(const LayerRouting& l) {
  std::string text = fmt::format("{}  share {:>6}", padded_name(l.section), percent(l.share()));
  if (l.dropped > 0) text += fmt::format("  dropped {:>6}", percent(double(l.dropped) / double(l.rows)));
  if (l.agreement.rows > 0) {
    if (l.agreement.said != l.routed) text += fmt::format("  by the rule {:>6}", percent(l.agreement.share()));
    text += "  " + agreement_text(l.agreement);
  }
  return text;
}

std::string eval_line(const EvalRecord& r) {
  std::string text = fmt::format("step {}  validation loss {:.4f}", r.step, r.top_k.loss);
  if (!r.top_k.layer.empty() || r.causal) text += r.top_k.layer.empty() ? " (as in training)" : " (top-k)";
  if (r.causal) text += fmt::format("  {:.4f} (causal rule)", r.causal->loss);
  for (const LayerExperts& l : (r.causal ? *r.causal : r.top_k).experts) text += "\n  " + experts_line(l);
  if (r.top_k.layer.empty()) return text;
  const LayerRouting all = together(r.top_k.layer);
  if (all.agreement.rows > 0) text += "\n  rule: " + agreement_text(all.agreement);
  if (r.causal) {
    text += "\n  causal shares:";
    for (const LayerRouting& l : r.causal->layer) text += fmt::format("  {} {}", l.section.name(), percent(l.share()));
  }
  return text;
}

}  // namespace isobath::cli
