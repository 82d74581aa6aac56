#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace isobath {

BatchLimits limits_of(const LoaderOptions& o) {
  const bool documents = o.capacity_scope == Scope::kDocument || o.attention_scope == Scope::kDocument;
  return {.sequences = o.B, .T = o.T, .max_documents = documents ? std::min(o.most_documents(), o.T) : 1};
}

namespace {

// No more windows at a time than the text has: buffers follow.
LoaderOptions fitted(LoaderOptions options, const TokenStream& text) {
  LoaderOptions one = options;
  one.B = 1;
  options.B = std::clamp<int64_t>(Loader(text, one).eval_sequences(), 1, options.B);
  return options;
}

}  // namespace

Evaluator::Evaluator(const ModelConfig& config, TokenStream text, const LoaderOptions& options)
    : Evaluator(config, text, fitted(options, text), Fitted{}) {}

Evaluator::Evaluator(const ModelConfig& config, TokenStream text, const LoaderOptions& options, Fitted)
    : loader_(std::move(text), options), batch_(options.B), acts_(config, limits_of(options), Purpose::kForward) {}

void add_routing(std::vector<LayerRouting>& layer, const ModelConfig& config, const Activations& acts, int64_t rows) {
  size_t next = 0;
  for (int64_t l = 0; l < config.sections(); l++) {
    const Section section = config.section(l);
    if (!section.routed) continue;
    const RouterActs& r = acts.section[size_t(l)].router;
    if (next == layer.size()) layer.push_back({.section = section});
    LayerRouting& entry = layer[next++];
    entry.routed += r.list.rows;
    entry.rows += rows;
    entry.dropped += r.dropped;
    entry.agreement += r.agreement;
  }
}

int64_t LayerExperts::assigned() const { return std::accumulate(expert_rows.begin(), expert_rows.end(), int64_t(0)); }

double LayerExperts::busiest() const {
  const int64_t all = assigned();
  if (all == 0) return 0;
  return double(*std::max_element(expert_rows.begin(), expert_rows.end())) * double(expert_rows.size()) / double(all);
}

LayerExperts& LayerExperts::operator+=(const LayerExperts& other) {
  expert_rows.resize(std::max(expert_rows.size(), other.expert_rows.size()));
  for (size_t e = 0; e < other.expert_rows.size(); e++) expert_rows[e] += other.expert_rows[e];
  rows += other.rows, dropped += other.dropped, no_ops += other.no_ops;
  loss_sum += other.loss_sum, agreement += other.agreement;
  return *this;
}

void add_experts(std::vector<LayerExperts>& experts, const ModelConfig& config, const Activations& acts) {
  if (!config.has_experts()) return;
  experts.resize(size_t(config.num_hidden_layers));
  for (int64_t l = 0; l < config.sections(); l++) {
    const Section section = config.section(l);
    if (!section.mlp()) continue;
    const ExpertActs& x = acts.section[size_t(l)].experts;
    LayerExperts& sum = experts[size_t(section.block)];
    sum.block = section.block;
    sum.expert_rows.resize(size_t(config.experts.experts));
    for (size_t e = 0; e < sum.expert_rows.size(); e++) {
      const int32_t* begin = x.to.begin.data + e;
      sum.expert_rows[e] += begin[1] - begin[0];
    }
    sum.rows += acts.section[size_t(l)].list.rows;
    sum.dropped += x.tally.dropped;
    sum.no_ops += x.tally.no_ops;
    sum.loss_sum += x.balance_sum + x.imitation_sum;
    sum.agreement += x.agreement;
  }
}

Evaluation Evaluator::run(const Model& model, const Selection& how, int64_t windows,
                          const std::function<void(int64_t done, int64_t of)>& progress,
                          const std::function<bool()>& stop,
                          const std::function<void(const Activations& acts, int64_t rows)>& on_batch) {
  const int64_t all = loader_.eval_sequences();
  const int64_t count = windows > 0 ? std::min(windows, all) : all;
  Evaluation result;
  double loss = 0, entropy = 0;  // rows in order, whatever the batch: the same bits
  for (int64_t first = 0; first < count; first += batch_) {
    if (stop && stop()) {
      result.complete = false;
      break;
    }
    const Batch& batch = loader_.eval(first, std::min(batch_, count - first), count);
    forward_blocks(model.weights.weights(), *model.products, acts_, model.config(), batch, how);
    forward_loss(model.weights.weights(), *model.products, acts_, model.config(), batch);
    for (int64_t n = 0; n < batch.rows(); n++) {
      loss += double(acts_.loss[n]);
      entropy += double(acts_.entropy[n]);
    }
    if (!std::isfinite(loss))
      fail_work("the loss of the evaluation is {} from window {} on; the model's numbers are out of range", loss,
                first);
    result.targets += loader_.scored_targets(batch);
    result.rows += batch.rows();
    result.windows += batch.sequence_id.numel();
    add_routing(result.layer, model.config(), acts_, batch.rows());
    add_experts(result.experts, model.config(), acts_);
    if (on_batch) on_batch(acts_, batch.rows());
    if (progress) progress(std::min(first + batch_, count), count);
  }
  result.loss = loss / double(std::max<int64_t>(1, result.targets));
  result.entropy = entropy / double(std::max<int64_t>(1, result.rows));
  return result;
}

}  // namespace isobath
