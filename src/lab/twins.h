// A Mixture-of-Depths model and its dense twin (the same blocks, none routed), trained on the same text with the same
// training FLOPs, and everything one wants to know of both.
//
//   const TwinSetup setup = twin_setup({.data = "text.txt", .seconds = 240});
//   const BudgetProbe probe = probe_budget(setup, tokenizer, corpus, peak);
//   Comparison c{.baseline = count_baseline(setup, tokenizer, corpus)};
//   c.dense = train_twin(setup.dense, probe.flops, tokenizer, corpus, peak, observer);
//   c.mod = train_twin(setup.mod, probe.flops, ...);
//   for (const Verdict& v : judge(c)) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/trace.h"
#include "train/trainer.h"

namespace isobath {

struct TwinOptions {
  std::string data;        // the text: path of a file or folder
  double seconds = 240;    // of training, both models together, on this machine
  double least_flops = 0;  // for each, however slow the machine
  bool quick = false;      // a pass through every stage that promises less: see judge()
  uint64_t seed = 1;
  fs::path out = "runs/demo";
};

struct TwinSetup {
  TwinOptions options;
  RunConfig dense, mod;  // out/dense and out/mod; the budget is not set yet
};
TwinSetup twin_setup(const TwinOptions& options);

// The budget that lets both twins together train for the seconds asked: a few steps of each are timed. Where that is
// less than least_flops, the budget is least_flops and takes longer.
struct BudgetProbe {
  double flops = 0;                           // for each twin
  double dense_flop_s = 0, mod_flop_s = 0;    // training FLOPs per second, of the median step
  double dense_seconds = 0, mod_seconds = 0;  // that the budget should take
};
BudgetProbe probe_budget(const TwinSetup& setup, const Tokenizer& tokenizer, const Corpus& corpus,
                         const MachinePeak& peak);

struct CurvePoint {
  double flops = 0, loss = 0;
};

struct Sample {
  std::string prompt, text;
};

// What one twin did.
struct Twin {
  std::string name;
  RunConfig config;  // resolved
  bool interrupted = false;
  fs::path checkpoint;
  std::vector<CurvePoint> training, validation;  // of every step; of the evaluations, by top-k
  EvalRecord evaluation;                         // at the end, over the whole validation text

  int64_t parameters = 0, steps = 0, tokens = 0;
  double flops = 0, flops_per_token = 0;  // training FLOPs spent; forward FLOPs of a token
  double training_seconds = 0;
  double training_tokens_per_s = 0;                    // of the median step
  double generation_tokens_per_s = 0;                  // one sequence at a time
  double kv_bytes_planned = 0, kv_bytes_measured = 0;  // per token, fp32; measured while the samples were written
  std::vector<Sample> samples;
  Trace trace;  // of validation text, by the causal rule; empty layers for the dense twin

  bool routed() const { return config.model.routed_blocks() > 0; }
};

// Trains to the budget, evaluates, saves, and loads the checkpoint again to write samples and trace validation text.
// A run that is in the folder already is replaced. When observer.stop ends it early, evaluation and what follows are
// left out.
Twin train_twin(RunConfig config, double flops, const Tokenizer& tokenizer, const Corpus& corpus,
                const MachinePeak& peak, const Observer& observer);

struct Baseline {
  double unigram = 0, bigram = 0, trigram = 0;  // nats per token, on the windows that the models are scored on
};

struct Comparison {
  TwinOptions options;
  int64_t train_tokens = 0, valid_tokens = 0;
  MachinePeak peak{};
  BudgetProbe probe;
  Baseline baseline;
  Twin dense, mod;
};

Baseline count_baseline(const TwinSetup& setup, const Tokenizer& tokenizer, const Corpus& corpus);

struct Verdict {
  bool passed = false;
  std::string text;
};

// What has to hold. Full: both twins' losses under the trigram baseline, the causal loss within 0.03 nats of the top-k
// loss, every causal share in [C/3, 3C]. Quick: the same with the bigram baseline.
std::vector<Verdict> judge(const Comparison& c);

// "MoD is 0.0123 nats better": which twin won, whatever it is.
std::string winner(const Comparison& c);

}  // namespace isobath
