// A training run: one object that steps, evaluates, saves and goes on where another process stopped, to the bit.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/machine.h"
#include "model/flops.h"
#include "text/corpus.h"
#include "train/evaluate.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/schedule.h"

namespace isobath {

// What one optimizer step did.
struct StepRecord {
  int64_t step = 0, steps = 0;
  double loss = 0;         // nats per scored token of this step
  double auxiliary = 0;    // mean binary cross-entropy of rule and top-k choice, or mean balance loss; 0 without one
  double z_loss = 0;       // mean square of the router scores, 0 without z_weight
  double expert_loss = 0;  // mean balance loss of the experts (1: used evenly), or cross-entropy of their causal rule
  GradientNorms norm;
  double learning_rate = 0;
  int64_t tokens = 0;  // seen so far
  double flops = 0;    // model FLOPs spent so far
  double step_ms = 0;
  double tokens_per_s = 0;
  double peak_share = 0;  // of the measured fp32 FMA peak
  std::vector<LayerRouting> layer;
  std::vector<LayerExperts> experts;
};

struct EvalRecord {
  int64_t step = 0;
  Evaluation top_k;
  std::optional<Evaluation> causal;  // none where nothing is chosen otherwise, or there is no causal rule
  bool complete() const { return top_k.complete && (!causal || causal->complete); }  // not stopped half-way
};

// Where a run is watched from. All may be empty.
struct Observer {
  std::function<void(const StepRecord&)> on_step = {};
  std::function<void(const EvalRecord&)> on_eval = {};
  std::function<void(const fs::path& folder)> on_save = {};
  std::function<void(int64_t done, int64_t of)> on_eval_progress = {};
  std::function<bool()> stop = {};  // asked after every step and evaluation window: save and return
};

struct TrainResult {
  bool interrupted = false;
  StepRecord last;
  std::optional<EvalRecord> final_eval;
  fs::path checkpoint;
};

class Trainer {
 public:
  // Plans and allocates everything. Throws Error{kInput} for options, text and model that do not go together.
  Trainer(const RunConfig& config, const Tokenizer& tokenizer, const Corpus& corpus, const MachinePeak& peak);
  ~Trainer();

  // Continues from a checkpoint of the same model on the same text.
  void resume(const fs::path& checkpoint);

  // To the end of the budget, or until observer.stop says so. Writes checkpoints and metrics.jsonl into train.out.
  TrainResult run(const Observer& observer);

  // One optimizer step, without evaluation or files.
  const StepRecord& step();
  EvalRecord evaluate(const Observer& observer, int64_t windows = 0);
  fs::path save(bool interrupted);

  const RunConfig& config() const;
  const Model& model() const;
  const Budget& budget() const;
  int64_t steps_done() const;
  int64_t planned_bytes() const;  // weights, gradients, moments, packed copies, activations
  double share_of_text() const;   // that a pass over the training text sees (Loader::share_seen)

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The config of a run, resolved: the model's vocabulary, token ids and sizes filled in. What Trainer runs.
RunConfig resolved(RunConfig config, const Tokenizer& tokenizer);

// The options that a checkpoint's run was started with. Throws Error if it is not a training checkpoint.
RunConfig stored_options(const fs::path& checkpoint);

// A model folder that other programs read: config.json, model.safetensors, tokenizer files.
void save_model(const fs::path& folder, const Model& model, const Tokenizer& tokenizer);

}  // namespace isobath
