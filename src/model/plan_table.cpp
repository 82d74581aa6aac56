#include "model/plan_table.h"

#include "base/error.h"
#include "model/weights.h"
#include "ops/attention.h"

namespace isobath {
namespace {

// "model.layers.12.x" and "block.12.x" -> 12; anything else -> -1.
int64_t block_of(const std::string& name) {
  for (const std::string_view prefix : {"model.layers.", "block."})
    if (name.starts_with(prefix)) return std::stoll(name.substr(prefix.size()));
  return -1;
}

// FLOPs that the kernels run forward and backward in one block for `sequences` whole sequences, of which `rows` rows
// each go through it.
double executed_block_flops(const ModelConfig& c, int64_t l, int64_t T, int64_t rows) {
  const int64_t D = c.hidden_size, F = c.intermediate_size, P = c.predictor_width();
  const Heads heads = c.heads();
  int64_t count = 3 * rows * D * (heads.qkv_cols() + heads.q_cols() + 3 * F) +
                  attention_forward_multiply_adds(rows, heads) + attention_backward_multiply_adds(rows, heads);
  if (c.routed(l) && c.routing.router == Router::kLearned)
    count += T * D + rows * D + (c.routing.causal == Causal::kBce ? T * D : 0);
  if (c.routed(l) && c.has_predictor()) count += T * (2 * D * P + 3 * P);
  return 2 * double(count);
}

}  // namespace

PlanTable plan_table(const ModelConfig& c, const BatchLimits& limits) {
  const int64_t L = c.num_hidden_layers;
  PlanTable table;
  table.block.resize(size_t(L));
  const auto row_of = [&](const std::string& name) -> PlanRow& {
    const int64_t l = block_of(name);
    return l < 0 ? table.rest : table.block[size_t(l)];
  };
  Weights unbound;
  for_each_weight(c, unbound,
                  [&](const WeightInfo& info, F32&) { row_of(info.name).parameters += info.shape.numel(); });
  const Activations acts(c, limits, Purpose::kTrain, Activations::Allocate::kNo);
  for (const Plan::Entry& entry : acts.plan().entries())
    if (block_of(entry.name) >= 0) row_of(entry.name).activation_bytes += entry.bytes;
  const ModelFlops flops = model_flops(c, 1, limits.T);
  const double T = double(limits.T);
  for (int64_t l = 0; l < L; l++) {
    PlanRow& row = table.block[size_t(l)];
    row.block = l;
    row.routed = c.routed(l);
    row.capacity = c.capacity(l);
    row.model_flops = double(flops.block[size_t(l)].total()) / T;
    row.executed_flops = executed_block_flops(c, l, limits.T, flops.block[size_t(l)].rows) / T;
    row.kv_bytes = c.capacity(l) * 2 * double(c.heads().kv_cols()) * 4;
  }
  table.rest.model_flops = double(flops.head) / T;
  table.rest.executed_flops = 3 * double(flops.head) / T;
  table.total = table.rest;
  for (const PlanRow& row : table.block) {
    table.total.parameters += row.parameters;
    table.total.model_flops += row.model_flops;
    table.total.executed_flops += row.executed_flops;
    table.total.activation_bytes += row.activation_bytes;
    table.total.kv_bytes += row.kv_bytes;
  }
  table.scratch_bytes = acts.plan().bytes() - table.total.activation_bytes;
  table.total.activation_bytes = acts.plan().bytes();
  table.weight_bytes = 4 * 4 * table.total.parameters;
  // Forward and backward copies of every matrix that is a product's weight.
  table.packed_bytes = 2 * 4 * (table.total.parameters - (c.tie_word_embeddings ? 0 : c.vocab_size * c.hidden_size));
  return table;
}

}  // namespace isobath
