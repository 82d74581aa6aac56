#include "model/plan_table.h"

#include "model/weights.h"

namespace isobath {
namespace {

PlanRow& operator+=(PlanRow& sum, const PlanRow& row) {
  sum.parameters += row.parameters;
  sum.model_flops += row.model_flops;
  sum.executed_flops += row.executed_flops;
  sum.activation_bytes += row.activation_bytes;
  sum.kv_bytes += row.kv_bytes;
  return sum;
}

// Executed by one section for one whole sequence of T tokens, of which `rows` go through it: evenly spaced ones, where
// it matters which.
ExecutedCount executed_by_sequence(const ModelConfig& c, const Section& section, int64_t T, int64_t rows,
                                   const MemoryOptions& memory) {
  const int32_t begin[] = {0, int32_t(rows)};
  std::vector<int32_t> seen;
  for (int64_t i = 0; i < rows; i++) seen.push_back(int32_t((i + 1) * T / rows));
  return executed_section(c, section, T, {.index = {}, .position = {}, .segment_begin = {begin, {2}}, .rows = rows},
                          memory, {seen.data(), {rows}}, chosen_expert_rows(c, rows));
}

void count_parameters(const ModelConfig& c, PlanTable& table) {
  Weights unbound;
  for_each_weight(c, unbound, [&](const WeightInfo& info, F32&) {
    (info.section < 0 ? table.rest : table.section[size_t(info.section)]).parameters += info.shape.numel();
  });
}

}  // namespace

PlanTable plan_table(const ModelConfig& c, const BatchLimits& limits, const MemoryOptions& memory) {
  const Activations acts(c, limits, Purpose::kTrain, Allocate::kNo, memory);
  const Activations evaluation(c, limits, Purpose::kForward, Allocate::kNo);
  const Products products(c,
                          {.max_rows = limits.rows(),
                           .exact = acts.list_sizes(),
                           .head_rows = head_chunk(c, limits.rows()),
                           .backward = true,
                           .packing = memory.packing},
                          Allocate::kNo);
  PlanTable table;
  table.section.resize(size_t(c.sections()));
  count_parameters(c, table);
  const ModelFlops flops = model_flops(c, 1, limits.T);
  const auto per_token = [&](int64_t of_sequence) { return double(of_sequence) / double(limits.T); };
  for (int64_t l = 0; l < c.sections(); l++) {
    PlanRow& row = table.section[size_t(l)];
    const SectionFlops& block = flops.section[size_t(l)];
    row.section = c.section(l);
    row.capacity = c.capacity(row.section);
    row.model_flops = per_token(block.total());
    row.executed_flops = per_token(2 * executed_by_sequence(c, row.section, limits.T, block.rows, memory).total());
    row.activation_bytes = acts.section_bytes(l);
    if (row.section.attention())
      row.kv_bytes = (c.keeps_all_keys(row.section) ? 1 : row.capacity) * 2 * double(c.heads().kv_cols()) * 4;
    table.total += row;
  }
  table.rest.model_flops = per_token(flops.head);
  table.rest.executed_flops = per_token(2 * executed_head(c, limits.T).total());
  table.rest.activation_bytes = acts.plan().bytes() - table.total.activation_bytes;
  table.total += table.rest;
  table.weight_bytes = 4 * WeightSet(c, Allocate::kNo).bytes();
  table.packed_bytes = products.bytes();
  table.evaluation_bytes = evaluation.plan().bytes();
  return table;
}

}  // namespace isobath
