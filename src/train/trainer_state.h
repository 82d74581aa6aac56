// What a Trainer is made of, shared by its two files: trainer.cpp steps, trainer_files.cpp saves and resumes.
#pragma once

#include "train/trainer.h"

namespace isobath {

struct Trainer::State {
  State(const RunConfig& config, const Tokenizer& tokenizer, const Corpus& corpus, const MachinePeak& peak);

  void advance();  // one step
  void accumulate(int64_t first, int64_t count);
  void update_thresholds();
  void set_capacity();  // to that of the next step
  template <class F>
  void guarded(F f);
  int64_t model_flops_of(const Batch& batch);

  RunConfig config;
  Tokenizer tokenizer;
  uint64_t corpus_hash;
  MachinePeak peak;
  Loader loader;
  Evaluator evaluator;
  Activations acts;
  Model model;
  WeightSet gradient;
  std::vector<uint8_t> trained;  // of the list of weights
  Optimizer optimizer;
  Budget budget;
  Schedule schedule;
  CapacityAnneal anneal;

  int64_t step = 0;       // optimizer steps done
  int64_t sequences = 0;  // sequences read: the whole position in the text
  double spent = 0;       // model FLOPs
  int64_t flops_per_sequence = 0;
  StepRecord record;
  std::vector<Midpoints> midpoints;  // of the step, per block
  fs::path saved;                    // the newest checkpoint
};

// Makes the folder of a run, which may hold no other run's checkpoints, and keeps other processes out of it.
// `resumed`: the checkpoint that the run goes on from, if any. Throws Error{kInput} where nothing can be written.
FolderLock prepare_folder(const fs::path& out, const fs::path& resumed);

}  // namespace isobath
