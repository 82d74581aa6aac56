#include "lab/twins.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <system_error>

#include "base/error.h"
#include "generate/engine.h"
#include "generate/load.h"
#include "lab/ngram.h"

namespace isobath {
namespace {

constexpr double kCausalGap = 0.03;  // nats that the causal rule may cost
const char* const kPrompts[] = {"And God said, ", "In the beginning ", "Blessed is the man "};

RunConfig common_config(const TwinOptions& o) {
  RunConfig c;
  c.model.hidden_size = 64;
  c.model.num_hidden_layers = 6;
  c.model.num_attention_heads = 2;
  c.data.path = o.data;
  c.data.context = 256;
  c.data.batch = o.quick ? 4 : 8;  // a short run needs steps more than smooth ones
  c.train.seed = o.seed;
  c.train.keep = 1;
  c.train.eval_windows = o.quick ? 16 : 64;
  return c;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// FLOPs per second of the median of a few real steps; the first ones warm caches and are left out.
double training_rate(RunConfig config, const Tokenizer& tokenizer, const Corpus& corpus, const MachinePeak& peak,
                     double seconds) {
  config.train.steps = 1 << 20;
  Trainer trainer(config, tokenizer, corpus, peak);
  std::vector<double> rates;
  double spent = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int step = 0; step < 5 || seconds_since(start) < seconds; step++) {
    const StepRecord& record = trainer.step();
    if (step >= 2) rates.push_back((record.flops - spent) / (record.step_ms / 1e3));
    spent = record.flops;
  }
  return quantile(rates, 0.5);
}

constexpr const char* kMark = "made-by-demo";  // of the folders that a later demo may remove

// A run that an earlier demo left makes room for a new one. Nothing else is removed: not a run of another command, nor
// one that is going on.
void make_room(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder / kMark, error)) {
    const FolderLock lock(folder);
    fs::remove_all(folder, error);
    if (error) fail_work("cannot remove the earlier run in {}: {}", folder.string(), error.message());
  }
  require(!fs::exists(folder / "metrics.jsonl", error),
          "{} holds a run that the demo did not make; move it, or name another folder (--out)", folder.string());
  fs::create_directories(folder, error);
  if (error) fail("cannot make the folder {}: {}; name another one (--out)", folder.string(), error.message());
  replace_file(folder / kMark, "The next demo in this place removes this folder.\n");
}

void write_samples(Twin& twin, const LoadedModel& loaded, uint64_t seed) {
  Engine engine(*loaded.model, loaded.tokenizer, {.sequences = 1});
  for (const char* prompt : kPrompts) {
    Request request{.prompt = prompt_tokens(loaded.tokenizer, prompt),
                    .stop_at_eos = false,
                    .sampling = {.temperature = 0.7, .seed = seed}};
    const int64_t room = loaded.model->config().max_position_embeddings - int64_t(request.prompt.size());
    request.max_tokens = std::max<int64_t>(1, room);
    twin.samples.push_back({prompt, run_all(engine, {request})[0].text});
  }
  const Statistics& statistics = engine.statistics();
  twin.generation_tokens_per_s = statistics.decode_tokens_per_second();
  double rows = 0;
  for (size_t l = 0; l < statistics.layer.size(); l++)
    if (loaded.model->config().section(int64_t(l)).attention()) rows += double(statistics.layer[l].rows);
  twin.kv_bytes_measured = rows * double(engine.kv_row_bytes()) / double(std::max<int64_t>(1, statistics.rows()));
}

void look_inside(Twin& twin, const Corpus& corpus, uint64_t seed) {
  const LoadedModel loaded = load_model(twin.checkpoint);
  loaded.model->prepare(trace_rows(*loaded.model));
  const SelectBy by = twin.routed() ? SelectBy::kCausal : SelectBy::kTopK;
  twin.trace = trace_text(*loaded.model, passage_of(corpus.valid), {.by = by});
  write_samples(twin, loaded, seed);
}

// Training watched for its curves, over what the caller wants to see of it.
Observer with_curves(const Observer& observer, Twin& twin, std::vector<double>& rates) {
  Observer with = observer;
  with.on_step = [&twin, &rates, &observer](const StepRecord& r) {
    twin.training.push_back({r.flops, r.loss});
    twin.training_seconds += r.step_ms / 1e3;
    rates.push_back(r.tokens_per_s);
    if (observer.on_step) observer.on_step(r);
  };
  with.on_eval = [&twin, &observer](const EvalRecord& r) {
    const double flops = twin.training.empty() ? 0 : twin.training.back().flops;
    twin.validation.push_back({flops, r.top_k.loss});
    if (observer.on_eval) observer.on_eval(r);
  };
  return with;
}

}  // namespace

TwinSetup twin_setup(const TwinOptions& options) {
  require(options.seconds > 0, "demo: {} seconds of training (--seconds), expected more than 0", options.seconds);
  TwinSetup setup{options, common_config(options), common_config(options)};
  setup.dense.train.out = (options.out / "dense").string();
  setup.mod.train.out = (options.out / "mod").string();
  setup.dense.model.routing.topology = Topology::kDense;
  setup.mod.model.routing.every = 2;
  setup.mod.model.routing.capacity = {0.125};
  setup.mod.model.routing.causal = Causal::kBce;
  return setup;
}

BudgetProbe probe_budget(const TwinSetup& setup, const Tokenizer& tokenizer, const Corpus& corpus,
                         const MachinePeak& peak) {
  const int64_t T = setup.dense.data.context;
  require(corpus.train.size() > T && corpus.valid.size() > T,
          "demo: {} has {} tokens to train on and {} to validate on, expected more than {} of each; use more text",
          setup.options.data, corpus.train.size(), corpus.valid.size(), T);
  const double each = std::clamp(setup.options.seconds / 100, 0.3, 2.0);
  BudgetProbe probe;
  probe.dense_flop_s = training_rate(setup.dense, tokenizer, corpus, peak, each);
  probe.mod_flop_s = training_rate(setup.mod, tokenizer, corpus, peak, each);
  const double bought = setup.options.seconds / (1 / probe.dense_flop_s + 1 / probe.mod_flop_s);
  probe.flops = std::max(bought, setup.options.least_flops);
  RunConfig dense = setup.dense;
  dense.train.flops = probe.flops;
  const double sequence = double(model_flops(resolved(dense, tokenizer).model, 1, T).training());
  require(probe.flops >= sequence,
          "demo: {} seconds are time for {:.3g} FLOPs, one sequence takes {:.3g}; raise --seconds",
          setup.options.seconds, probe.flops, sequence);
  probe.dense_seconds = probe.flops / probe.dense_flop_s;
  probe.mod_seconds = probe.flops / probe.mod_flop_s;
  return probe;
}

Twin train_twin(RunConfig config, double flops, const Tokenizer& tokenizer, const Corpus& corpus,
                const MachinePeak& peak, const Observer& observer) {
  config.train.flops = flops;
  const RunConfig full = resolved(config, tokenizer);
  const int64_t T = full.data.context;
  const Budget budget = plan_budget(full.model, full.data.batch, T, flops);
  constexpr int64_t kEvaluations = 16;  // points of a curve
  config.train.eval_every = std::max<int64_t>(1, (budget.steps + kEvaluations - 1) / kEvaluations);
  make_room(config.train.out);

  Twin twin;
  twin.name = full.model.routed_blocks() > 0 ? "MoD" : "dense";
  std::vector<double> rates;
  TrainResult result;
  {
    Trainer trainer(config, tokenizer, corpus, peak);
    twin.config = trainer.config();
    result = trainer.run(with_curves(observer, twin, rates));
  }
  twin.interrupted = result.interrupted;
  twin.checkpoint = result.checkpoint;
  twin.parameters = count_weights(full.model);
  twin.steps = result.last.step;
  twin.tokens = result.last.tokens;
  twin.flops = result.last.flops;
  twin.flops_per_token = double(model_flops(full.model, 1, T).forward()) / double(T);
  twin.training_tokens_per_s = rates.empty() ? 0 : quantile(rates, 0.5);
  twin.kv_bytes_planned = kv_bytes_per_token(full.model);
  if (result.interrupted || !result.final_eval) return twin;
  twin.evaluation = *result.final_eval;
  look_inside(twin, corpus, config.train.seed);
  return twin;
}

Baseline count_baseline(const TwinSetup& setup, const Tokenizer& tokenizer, const Corpus& corpus) {
  const Ngram counts(corpus.train, tokenizer.vocab_size());
  const LoaderOptions windows{.T = setup.dense.data.context, .B = 1};
  return {counts.loss(corpus.valid, windows, 1), counts.loss(corpus.valid, windows, 2),
          counts.loss(corpus.valid, windows, 3)};
}

std::vector<Verdict> judge(const Comparison& c) {
  const bool quick = c.options.quick;
  const char* name = quick ? "bigram" : "trigram";
  const double bar = quick ? c.baseline.bigram : c.baseline.trigram;
  std::vector<Verdict> verdicts;
  const auto under = [&](const Twin& twin) {
    const double loss = twin.evaluation.top_k.loss;
    verdicts.push_back(
        {loss < bar, fmt::format("{} loss {:.4f} under the {} baseline {:.4f}", twin.name, loss, name, bar)});
  };
  under(c.dense);
  under(c.mod);
  const double causal = c.mod.evaluation.causal ? c.mod.evaluation.causal->loss : HUGE_VAL;
  const double gap = std::abs(causal - c.mod.evaluation.top_k.loss);
  verdicts.push_back({gap <= kCausalGap, fmt::format("MoD causal loss {:.4f} within {} nats of its top-k loss: {:.4f}",
                                                     causal, kCausalGap, gap)});
  if (!c.mod.evaluation.causal) return verdicts;
  for (const LayerRouting& layer : c.mod.evaluation.causal->layer) {
    const double C = c.mod.config.model.capacity(layer.section), share = layer.share();
    verdicts.push_back(
        {share >= C / 3 && share <= 3 * C, fmt::format("{} causal share {:.1f}% in [C/3, 3C] = [{:.1f}%, {:.1f}%]",
                                                       layer.section.name(), 100 * share, 100 * C / 3, 300 * C)});
  }
  return verdicts;
}

std::string winner(const Comparison& c) {
  const double dense = c.dense.evaluation.top_k.loss;
  const double mod = c.mod.evaluation.causal ? c.mod.evaluation.causal->loss : c.mod.evaluation.top_k.loss;
  return fmt::format("At equal training FLOPs the {} is better by {:.4f} nats per token ({})",
                     mod < dense ? "MoD model (causal)" : "dense model", std::abs(dense - mod),
                     c.options.quick ? "a short run: too little training to judge by"
                                     : "one seed, one budget: other ones may say otherwise");
}

}  // namespace isobath
