#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "train/budget.h"
#include "train/metrics.h"
#include "train/start_from.h"
#include "train/train_only.h"
#include "train/trainer_state.h"

namespace isobath {
namespace {

LoaderOptions loader_options(const RunConfig& c, int64_t sequences) {
  return {.T = c.data.context,
          .B = sequences,
          .seed = c.train.seed,
          .capacity_scope = c.model.routing.capacity_scope,
          .attention_scope = c.model.routing.attention_scope,
          .max_documents = c.data.max_documents};
}

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

bool all_finite(CStored x) {
  return with_format(x, [](auto rows) {
    return std::all_of(rows.data, rows.data + rows.numel(), [](auto v) { return std::isfinite(to_f32(v)); });
  });
}

// Where the pass over `rows` rows that gave a loss of NaN or infinity went wrong, for the message. Of what the pass
// left, the inputs of the blocks are as they were.
std::string first_not_finite(const Activations& acts, int64_t rows) {
  const size_t L = acts.section.size();
  for (size_t l = 0; l <= L; l++) {
    const CStored input =
        l < L ? CStored(acts.section[l].saved.slice(0, acts.section[l].list.rows)) : CStored(acts.x.slice(0, rows));
    if (!all_finite(input)) return l == 0 ? "the embedding" : fmt::format("the output of block {}", l - 1);
  }
  return "the output head";
}

// A model whose capacity is still on its way from 1 (upcycled, or of a run that was interrupted) would start with
// another capacity than it has, and with other blocks than the ones it learned to compute.
void check_anneal(const RunConfig& c) {
  if (c.train.capacity_anneal > 0 || c.model.routing.annealed == 1) return;
  ModelConfig arrived = c.model;
  arrived.routing.annealed = 1;
  check_routing(arrived);
  for (int64_t l = 0; l < c.model.num_hidden_layers; l++)
    require(arrived.capacity(l) == c.model.capacity(l),
            "{}: block {} has a capacity of {:.4g} now, and the first step would cut it to {:.4g}; let it fall with "
            "--capacity-anneal 0.5 (a share of the run, or a number of steps)",
            c.train.from, l, c.model.capacity(l), arrived.capacity(l));
}

}  // namespace

RunConfig resolved(RunConfig c, const Tokenizer& tokenizer) {
  check_options(c);
  c.model.vocab_size = tokenizer.vocab_size();
  c.model.bos_token_id = tokenizer.bos();
  if (tokenizer.eos() >= 0) c.model.eos_token_id = {tokenizer.eos()};
  if (!c.train.from.empty()) take_vocabulary(c.model, c.train.from, tokenizer.vocab_size());
  check_anneal(c);
  c.model.routing.annealed = 1;
  resolve(c.model, c.data.context);
  if (c.data.micro_batch == 0) c.data.micro_batch = c.data.batch;
  if (c.model.routing.router == Router::kRandom && c.model.routing.router_seed == 0)
    c.model.routing.router_seed = int64_t(c.train.seed);
  if (c.train.learning_rate == 0) c.train.learning_rate = 3e-3 * std::sqrt(128.0 / double(c.model.hidden_size));
  return c;
}

namespace {

// Buffers have to take the largest lists of a run: all rows, where capacity is annealed.
ModelConfig largest(const RunConfig& c) {
  ModelConfig model = c.model;
  if (c.train.capacity_anneal > 0) model.routing.annealed = 0;
  return model;
}

}  // namespace

Trainer::State::State(const RunConfig& run, const Tokenizer& tok, const Corpus& text, const MachinePeak& machine)
    : config(run),
      tokenizer(tok),
      corpus_hash(text.hash),
      peak(machine),
      loader(text.train, loader_options(run, run.data.micro_batch)),
      evaluator(run.model, text.valid, loader_options(run, run.data.micro_batch)),
      acts(largest(run), limits_of(loader_options(run, run.data.micro_batch)), Purpose::kTrain, Allocate::kYes,
           run.train.memory),
      model(run.model),
      gradient(run.model),
      trained(trained_weights(model.weights.list(), run.train.train_only)),
      optimizer(run.model, {run.train.beta1, run.train.beta2, run.train.weight_decay, run.train.clip}, trained),
      budget(budget_of(run, &loader)),
      schedule{run.train.learning_rate, budget.steps, run.train.warmup, run.train.final_rate},
      anneal(anneal_of(run.train, budget.steps)) {
  initialize(model.weights, run.train.seed);
  if (!run.train.from.empty()) read_start(model.weights, run.train.from);
  const Activations annealed(run.model, acts.limits(), Purpose::kTrain, Allocate::kNo);
  std::vector<int64_t> sizes = acts.list_sizes();
  for (const int64_t rows : annealed.list_sizes()) sizes.push_back(rows);
  model.prepare(std::max(acts.limits().rows(), evaluator.rows()), true, sizes, run.train.memory.packing);
  set_capacity();
  for (int64_t l = 0; l < run.model.sections(); l++)
    if (const Section section = run.model.section(l); section.routed) record.layer.push_back({.section = section});
  record.steps = budget.steps;
}

Trainer::Trainer(const RunConfig& config, const Tokenizer& tokenizer, const Corpus& corpus, const MachinePeak& peak) {
  if (config.train.threads > 0) set_thread_count(int(config.train.threads));
  const RunConfig run = resolved(config, tokenizer);
  require(corpus.train.size() > run.data.context,
          "{}: {} tokens to train on, expected at least context + 1 = {}; use more text or a smaller context",
          run.data.path, corpus.train.size(), run.data.context + 1);
  state_ = std::make_unique<State>(run, tokenizer, corpus, peak);
}

Trainer::~Trainer() = default;

const RunConfig& Trainer::config() const { return state_->config; }
const Model& Trainer::model() const { return state_->model; }
const Budget& Trainer::budget() const { return state_->budget; }
int64_t Trainer::steps_done() const { return state_->step; }
double Trainer::share_of_text() const { return state_->loader.share_seen(); }

int64_t Trainer::planned_bytes() const {
  const State& s = *state_;
  return s.model.weights.bytes() + s.gradient.bytes() + s.optimizer.first.bytes() + s.optimizer.second.bytes() +
         s.model.products->bytes() + s.acts.plan().bytes();
}

// Forward and backward over the step's sequences; leaves gradients, and sums in the record.
void Trainer::State::accumulate(int64_t first, int64_t count) {
  const int64_t micro = config.data.micro_batch;
  const Loader::Count all = loader.train_count(first, count);
  const StepScale scale{.targets = all.targets, .rows = all.rows, .runs = all.runs};
  const Selection how{.step = step};
  double loss = 0, auxiliary = 0, squares = 0;
  for (LayerRouting& layer : record.layer) layer = {.section = layer.section};
  for (LayerExperts& layer : record.experts) {  // keeps its room
    std::fill(layer.expert_rows.begin(), layer.expert_rows.end(), 0);
    layer = {.block = layer.block, .expert_rows = std::move(layer.expert_rows)};
  }
  midpoints.assign(acts.section.size(), {});
  for (int64_t at = 0; at < count; at += micro) {
    const Batch& batch = loader.train(first + at, std::min(micro, count - at));
    loss += forward_backward(model.weights.weights(), gradient.weights(), *model.products, acts, config.model, batch,
                             how, scale);
    if (!std::isfinite(loss)) fail_work("the loss is {}, first seen in {}", loss, first_not_finite(acts, batch.rows()));
    add_routing(record.layer, config.model, acts, batch.rows());
    add_experts(record.experts, config.model, acts);
    for (size_t l = 0; l < acts.section.size(); l++) {
      auxiliary += acts.section[l].router.auxiliary_sum;
      squares += acts.section[l].router.square_sum;
      midpoints[l] += acts.section[l].router.midpoints;
    }
    spent += double(model_flops_of(batch));
  }
  record.loss = loss / double(std::max<int64_t>(1, scale.targets));
  const double layers = double(std::max<size_t>(1, record.layer.size()));
  const bool balance = config.model.routing.choice == Choice::kToken;
  record.auxiliary = auxiliary / layers / double(balance ? scale.runs : scale.rows);
  record.z_loss = squares / layers / double(scale.rows);
  record.expert_loss = 0;
  for (const LayerExperts& layer : record.experts)
    record.expert_loss += layer.loss_sum / double(record.experts.size()) / double(scale.runs);
  record.tokens += scale.rows;
}

// A function of the step alone, so that a resumed run has the same.
void Trainer::State::set_capacity() {
  const double share = anneal.at(step + 1);
  if (share != config.model.routing.annealed) flops_per_sequence = 0;
  config.model.routing.annealed = share;
  model.weights.set_annealed(share);
}

// Once per optimizer step, whatever its micro-batches.
void Trainer::State::update_thresholds() {
  for (size_t i = 0; i < trained.size(); i++) {
    const WeightInfo& info = model.weights.list()[i];
    if (!trained[i] || info.kind != Kind::kRule) continue;
    RouterWeights& router = model.weights.weights().section[size_t(info.section)].router;
    float& t = model.weights.at(i)[0];
    if (&t != router.threshold.data) continue;  // an offset, which is calibrated
    const Section section = config.model.section(info.section);
    t = next_threshold(t, step + 1, midpoints[size_t(info.section)], config.model.capacity(section));
  }
}

// Sequences that are whole count the same every time; ragged ones are counted as they come.
int64_t Trainer::State::model_flops_of(const Batch& batch) {
  const BatchLimits& limits = acts.limits();
  const int64_t sequences = batch.sequence_id.numel();
  if (limits.max_documents > 1 || batch.rows() != sequences * limits.T)
    return model_flops(config.model, batch.capacity_begin, batch.segment_begin).training();
  if (flops_per_sequence == 0) flops_per_sequence = model_flops(config.model, 1, limits.T).training();
  return flops_per_sequence * sequences;
}

void Trainer::State::advance() {
  const auto start = std::chrono::steady_clock::now();
  const bool short_one = step + 1 == budget.steps && budget.last_sequences > 0;
  const int64_t count = short_one ? budget.last_sequences : config.data.batch;
  try {
    accumulate(sequences, count);
    record.learning_rate = schedule.at(step + 1);
    record.norm = optimizer.step(model.weights, gradient, record.learning_rate, step + 1);
    update_thresholds();
  } catch (const Error& error) {
    fail_work("step {}: {}", step + 1, error.what());
  }
  model.products->pack(model.weights.weights());
  step++;
  sequences += count;
  record.step = step;
  record.flops = spent;
  record.step_ms = milliseconds_since(start);
  record.tokens_per_s = double(count * config.data.context) / (record.step_ms / 1e3);
  record.peak_share = double(utilisation_flops(config.model, count, config.data.context)) / (record.step_ms * 1e6) /
                      std::max(1e-9, peak.fma_gflop_s);
  set_capacity();
}

// Runs f(); an error on the way is a failure during work and names the last good checkpoint.
template <class F>
void Trainer::State::guarded(F f) {
  try {
    f();
  } catch (const Error& error) {
    std::error_code ignored;
    fail_work("{}; {}", error.what(),
              saved.empty()                ? "no checkpoint was written yet"
              : fs::exists(saved, ignored) ? "the last good checkpoint is " + saved.string()
                                           : "the last checkpoint was " + saved.string());
  }
}

const StepRecord& Trainer::step() {
  state_->guarded([&] { state_->advance(); });
  return state_->record;
}

EvalRecord Trainer::evaluate(const Observer& observer, int64_t windows) {
  State& s = *state_;
  EvalRecord record{.step = s.step, .top_k = {}, .causal = {}};
  record.top_k = s.evaluator.run(s.model, {.by = SelectBy::kTopK}, windows, observer.on_eval_progress, observer.stop);
  const bool differ = s.config.model.routed_blocks() > 0 || s.config.model.experts_differ();
  if (record.top_k.complete && differ && s.config.model.has_causal_rule())
    record.causal =
        s.evaluator.run(s.model, {.by = SelectBy::kCausal}, windows, observer.on_eval_progress, observer.stop);
  return record;
}

TrainResult Trainer::run(const Observer& observer) {
  State& s = *state_;
  const TrainOptions& o = s.config.train;
  const FolderLock lock = prepare_folder(o.out, s.saved);
  Metrics metrics(o.out, s.step);
  const auto evaluate_now = [&](int64_t windows) {
    std::optional<EvalRecord> record = evaluate(observer, windows);
    if (!record->complete()) return std::optional<EvalRecord>();
    metrics.write(*record);
    if (observer.on_eval) observer.on_eval(*record);
    return record;
  };
  const auto save_now = [&](bool interrupted) {
    lock.require_in_place(o.out);
    fs::path folder;
    try {
      folder = save(interrupted);
    } catch (const Error&) {
      lock.require_in_place(o.out);  // that it was moved meanwhile says more than what could not be written
      throw;
    }
    if (observer.on_save) observer.on_save(folder);
  };
  const auto due = [&](int64_t every) { return every > 0 && s.step > 0 && s.step % every == 0; };

  TrainResult result;
  s.guarded([&] {
    bool stopped = observer.stop && observer.stop();
    while (s.step < s.budget.steps && !stopped) {
      // After saving: a run resumed here evaluates here, and so does one that was stopped in the middle of it.
      if (due(o.eval_every) && !evaluate_now(o.eval_windows)) break;
      s.advance();
      metrics.write(s.record);
      if (observer.on_step) observer.on_step(s.record);
      stopped = observer.stop && observer.stop();
      if (s.step < s.budget.steps && !stopped && due(o.save_every)) save_now(false);
    }
    result.interrupted = s.step < s.budget.steps;
    save_now(result.interrupted);
    if (!result.interrupted) result.final_eval = evaluate_now(0);
    if (!result.interrupted && !result.final_eval) {
      result.interrupted = true;  // all steps are done, but the evaluation is owed
      save_now(true);
    }
    metrics.end(s.step, result.interrupted);
  });
  result.last = s.record;
  result.checkpoint = s.saved;
  return result;
}

}  // namespace isobath
