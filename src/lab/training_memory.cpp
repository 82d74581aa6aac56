#include "lab/training_memory.h"

#include <map>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "lab/chart_parts.h"
#include "lab/record.h"
#include "model/weights.h"
#include "train/evaluate.h"

namespace isobath {
namespace {

using Json = nlohmann::json;

// Scratch of the products follows the number of threads.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) {
    if (count > 0) set_thread_count(count);
  }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

int64_t parameters_at(ModelConfig model, int64_t context, int64_t vocabulary) {
  model.vocab_size = vocabulary;
  resolve(model, context);
  return count_weights(model);
}

// The number of parameters is linear in it. 0: there is none of which the model has so many.
int64_t vocabulary_of(const RunConfig& c, int64_t parameters) {
  constexpr int64_t kSome = 256;
  const int64_t some = parameters_at(c.model, c.data.context, kSome),
                each = parameters_at(c.model, c.data.context, kSome + 1) - some;
  const int64_t vocabulary = kSome + (parameters - some) / each;
  return (parameters - some) % each == 0 && vocabulary > 0 ? vocabulary : 0;
}

std::string short_label(const RecipeSummary& r) {
  const std::string variant = r.first->value("variant", ""), size = r.first->value("size", "");
  return variant + (variant.empty() || size.empty() ? "" : ", ") + size;
}

// What the plan depends on.
std::string plan_key(const Json& record) {
  Json key = record["changed"];
  const Json train = key.value("train", Json::object());
  key["train"] = {train.value("storage", Json()), train.value("capacity_anneal", Json())};
  key["of"] = {record["parameters"], record["measured"].value("threads", Json())};
  return key.dump();
}

}  // namespace

std::optional<PlanTable> training_plan(const Json& record) {
  try {
    RunConfig c = options_of(record);
    c.model.vocab_size = vocabulary_of(c, record["parameters"].get<int64_t>());
    if (c.model.vocab_size == 0) return {};
    if (c.train.capacity_anneal > 0) c.model.routing.annealed = 0;  // lists of all rows, at its start
    resolve(c.model, c.data.context);
    const Threads of_run(record["measured"].value("threads", 0));
    return plan_table(c.model,
                      limits_of({.T = c.data.context,
                                 .B = c.data.micro_batch > 0 ? c.data.micro_batch : c.data.batch,
                                 .capacity_scope = c.model.routing.capacity_scope,
                                 .attention_scope = c.model.routing.attention_scope,
                                 .max_documents = c.data.max_documents}),
                      c.train.memory);
  } catch (const Error&) {
    return {};
  }
}

Figure training_memory(const Recipes& all) {
  Figure figure{
      "memory",
      "Memory of training",
      "What the model and its training take, as `isobath plan` counts it: weights, gradients and both moments, "
      "packed copies of the weights for the products, and the activations of one micro-batch, nothing of which "
      "is computed twice (the defaults of `recompute` and `pack`, which records do not hold). Of it, activations are "
      "what routing saves. Text and program come on top.",
      {}};
  std::map<std::string, const RecipeSummary*> plans;  // the first of each
  std::map<std::string, int> named;                   // plans by the short label
  for (const RecipeSummary& r : all)
    if (plans.emplace(plan_key(*r.first), &r).second) named[short_label(r)]++;
  DotsData data;
  data.table.head = {"model", "weights, gradients, moments", "packed", "activations", "in all"};
  for (const RecipeSummary& r : all) {
    if (plans.at(plan_key(*r.first)) != &r) continue;
    const auto plan = training_plan(*r.first);
    if (!plan) continue;
    const std::string name = short_label(r), label = name.empty() || named.at(name) > 1 ? r.label : name;
    const auto dot = [&](const char* what, int64_t bytes) {
      data.dot(label, what, seed_spread({double(bytes) / 1e6}),
               fmt::format("{}, {}: {}", label, what, bytes_text(double(bytes))));
    };
    dot("activations", plan->total.activation_bytes);
    dot("in all", plan->training_bytes());
    data.table.rows.push_back({label, bytes_text(double(plan->weight_bytes)), bytes_text(double(plan->packed_bytes)),
                               bytes_text(double(plan->total.activation_bytes)),
                               bytes_text(double(plan->training_bytes()))});
  }
  figure.chart = data.chart({"activations", "in all"}, "MB", data.table.rows.size());
  set_signal(figure.chart.spec, "x_format", ".3~s");
  for (Json& scale : figure.chart.spec["scales"])
    if (scale["name"] == "x") scale["zero"] = true;
  return figure;
}

}  // namespace isobath
