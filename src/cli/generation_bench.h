// Text written by a dense model and its Mixture-of-Depths twin, with random weights, pass by pass in turns, or by the
// model of a folder alone, beside the machine's memory speed measured in the same run.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/machine.h"
#include "cli/op_profile.h"
#include "cli/pair_bench.h"
#include "generate/engine.h"
#include "generate/load.h"

namespace isobath::cli {

struct GenerationSetup {
  ModelConfig model;                   // resolved for twice the context: sequences that wait for others write beyond it
  int64_t context = 512, tokens = 64;  // prompts are read up to context - tokens; then passes are timed
  int64_t sequences = 1;               // the largest batch
  std::optional<WeightFormat> weights = {};  // as EngineOptions has it
  Storage kv = Storage::kF32;
  int64_t speculate = 0;  // above 0: the routed model once more, with so many drafts
};

// Passes that each drew a token for every sequence of the batch; with drafts, rounds that each drew some. Bytes: those
// that products and attention must read and write, weights of blocks that ran, keys and values first of all
// (base/work.h).
struct GenerationTimes {
  int64_t batch = 0;
  std::vector<double> pass_ms = {}, pass_bytes = {}, pass_tokens = {};
  // Of a window of passes each: the rate of its quickest tenth over the speed of memory, measured before and after it.
  std::vector<double> bound_shares = {};
  OpProfile profile = {};  // of the pass with the most bytes a second
  Speculation speculation = {};
  double first_token_ms = 0, prompt_tokens_per_s = 0;  // of all prompts of the batch: until the last one's first token
  double routed_share = 1;                             // of rows, in routed blocks
  int64_t kv_used_bytes = 0, kv_held_bytes = 0, kv_dense_bytes = 0;  // at the end, at full context

  double mean_bytes() const;
  double mean_tokens() const;  // drawn in a pass, of all sequences
  // A pass that others did not disturb: passes differ in bytes, so the rate of the quickest tenth is taken, at the
  // mean. Of all passes, or of those from `first` on.
  double quick_bytes_per_ms(size_t first = 0) const;
  double quick_ms() const { return mean_bytes() / quick_bytes_per_ms(); }
  double tokens_per_s() const { return 1e3 * mean_tokens() / quick_ms(); }
  double bound_share() const { return median(bound_shares); }
};

// Engine and model; packs when it is made.
class GenerationBench {
 public:
  GenerationBench(const ModelConfig& config, const GenerationSetup& setup, int64_t speculate = 0);
  // A folder's model, which must have a context of twice setup.context.
  GenerationBench(const std::string& folder, const GenerationSetup& setup);
  void start(int64_t batch);  // reads the prompts
  void pass();
  void end_window(double read_gb_s);
  bool behind(int64_t tokens) const;  // whether fewer were drawn, by the sequence on average
  void end();
  const GenerationTimes& times() const { return times_; }
  const ModelConfig& config() const { return model_->config(); }
  WeightFormat format() const { return *engine_->options().weights; }
  int64_t weights() const { return count_weights(config()); }
  int64_t weight_bytes() const { return engine_->weight_bytes(); }
  double pack_ms() const { return pack_ms_; }  // of a folder's model, with loading it

 private:
  void make_engine(const Tokenizer& tokenizer);
  GenerationSetup setup_;
  std::unique_ptr<Model> model_;
  double pack_ms_ = 0, most_bytes_per_ms_ = 0;
  size_t window_ = 0;  // its first pass
  std::unique_ptr<Engine> engine_;
  std::vector<int64_t> ids_;
  GenerationTimes times_;
};

struct GenerationPair {
  GenerationTimes dense;  // or the folder's model, alone
  std::optional<GenerationTimes> mod = {};
  std::optional<GenerationTimes> drafting = {};  // the same as mod, but with drafts
  double speed_ratio() const { return mod->tokens_per_s() / dense.tokens_per_s(); }
  double bytes_ratio() const { return dense.mean_bytes() / mod->mean_bytes(); }
  double net_speed() const { return drafting->tokens_per_s() / mod->tokens_per_s(); }
  double round_passes() const {
    return drafting->quick_ms() / mod->quick_ms();
  }  // passes that a round takes as long as
};

struct GenerationReport {
  GenerationSetup setup;
  WeightFormat format = WeightFormat::kF32;
  int64_t weights = 0, weight_bytes = 0;  // of the dense model
  int64_t read_bytes = 0;                 // that memory's speed is measured with: as many as the weights, or more
  double pack_ms = 0;
  MachinePeak peak = {};
  std::vector<GenerationPair> pairs;
};

// Of a folder's model alone if one is named, else of a pair of setup.model.
GenerationReport bench_generation(const GenerationSetup& setup, const std::vector<int64_t>& batches,
                                  const std::string& folder = "");
std::vector<Goal> goals_of(const GenerationReport& report);
// With `profile`, also where the time of the quickest pass of each model went.
std::string text_of(const GenerationReport& report, bool profile);
nlohmann::json to_json(const GenerationReport& report, bool profile);

}  // namespace isobath::cli
