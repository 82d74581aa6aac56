// Everything that a training run can be told, as one list: TOML files, flags, help and the saved run walk it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/file.h"
#include "model/activations.h"
#include "model/config.h"
#include "train/toml_file.h"

namespace isobath {

struct DataOptions {
  std::string path;        // text, JSONL or token shards: a file or a folder
  std::string valid_path;  // empty: as Corpus::load says
  std::string tokenizer = "bytes";
  int64_t context = 256;      // T
  int64_t batch = 16;         // sequences per optimizer step
  int64_t micro_batch = 0;    // sequences in memory at once; 0: all of batch
  int64_t max_documents = 0;  // per sequence, with document scopes; 0: max(1, T/64)
};

enum class AnnealShape : uint8_t { kLinear, kCosine };
template <>
inline constexpr std::array kNames<AnnealShape>{"linear", "cosine"};

struct TrainOptions {
  int64_t steps = 0;  // one of these three is the budget
  int64_t tokens = 0;
  double flops = 0;
  double learning_rate = 0;  // peak; 0: 3e-3 * sqrt(128/D)
  double warmup = 0.02;      // share of the steps
  double final_rate = 0.1;   // share of the peak at the end of the cosine
  double beta1 = 0.9, beta2 = 0.95, weight_decay = 0.1, clip = 1.0;
  uint64_t seed = 1;
  int64_t eval_every = 0;    // steps; 0: at the end only
  int64_t eval_windows = 0;  // of validation text per evaluation during the run; 0: all
  int64_t save_every = 0;    // steps; 0: at the end (and when interrupted)
  int64_t keep = 2;          // newest checkpoints to keep
  int64_t threads = 0;       // 0: as many as there are
  std::string from;          // a model folder whose weights are the start; empty: start values
  std::string train_only;    // patterns of names, with commas; empty: all weights
  double capacity_anneal = 0;
  AnnealShape capacity_anneal_shape = AnnealShape::kLinear;
  MemoryOptions memory;
  std::string out = "runs/isobath";
};

struct RunConfig {
  RunConfig() { model.routing.topology = Topology::kJoint; }  // what the program is for; dense has to be asked for
  ModelConfig model;
  DataOptions data;
  TrainOptions train;
};

template <class Options, class Visit>
void for_each_data_option(Options& d, Visit visit) {
  visit("data", "path", d.path, "training text: .txt, .jsonl, token shards, or a folder of these");
  visit("data", "valid_path", d.valid_path,
        "validation text; empty: files of the folder that are named valid or val, or a split of the text");
  visit("data", "tokenizer", d.tokenizer, "bytes, or a tokenizer.json, or a folder that holds one");
  visit("data", "context", d.context, "tokens per sequence T");
  visit("data", "batch", d.batch, "sequences per optimizer step");
  visit("data", "micro_batch", d.micro_batch, "sequences in memory at once; 0: all of batch");
  visit("data", "max_documents", d.max_documents, "documents per sequence, with document scopes; 0: max(1, T/64)");
}
template <class Options, class Visit>
void for_each_train_option(Options& t, Visit visit) {
  visit("train", "steps", t.steps, "budget in optimizer steps");
  visit("train", "tokens", t.tokens, "budget in tokens");
  visit("train", "flops", t.flops, "budget in training FLOPs");
  visit("train", "learning_rate", t.learning_rate, "peak learning rate; 0: 3e-3 * sqrt(128/D)");
  visit("train", "warmup", t.warmup, "share of the steps in which the rate rises");
  visit("train", "final_rate", t.final_rate, "share of the peak rate at the end of the cosine");
  visit("train", "beta1", t.beta1, "AdamW: decay of the first moment");
  visit("train", "beta2", t.beta2, "AdamW: decay of the second moment");
  visit("train", "weight_decay", t.weight_decay, "AdamW: on matrices, not on embedding, norms, router, predictor");
  visit("train", "clip", t.clip, "largest gradient norm; 0: no clipping");
  visit("train", "seed", t.seed, "of start values, order of the text, random routing");
  visit("train", "eval_every", t.eval_every, "evaluate every so many steps; 0: at the end only");
  visit("train", "eval_windows", t.eval_windows, "windows of validation text during the run; 0: all");
  visit("train", "save_every", t.save_every, "write a checkpoint every so many steps; 0: at the end only");
  visit("train", "keep", t.keep, "newest checkpoints to keep");
  visit("train", "from", t.from, "start from the weights of this model folder; [model] and [routing] are its own");
  visit("train", "train_only", t.train_only,
        "train the weights whose names have one of these parts (or match, with *), such as router,predictor; router "
        "takes "
        "the experts' routers too; empty: all");
  visit("train", "capacity_anneal", t.capacity_anneal,
        "let capacity fall from 1 to the routing's over so many steps, or below 1 over this share of the run; 0: no");
  visit("train", "capacity_anneal_shape", t.capacity_anneal_shape, "how it falls");
  visit("train", "threads", t.threads, "0: as many as there are cores");
  visit("train", "recompute", t.memory.recompute,
        "none, or blocks: keep the inputs of each block only and run it again before its backward pass; same bits");
  visit("train", "storage", t.memory.storage,
        "f32, or bf16: what forward leaves for backward in half the bytes, rounded before it is used");
  visit("train", "pack", t.memory.packing,
        "weights for the products: step keeps packed copies, product packs again before each product; same bits");
  visit("train", "out", t.out, "folder of the run");
}
template <class Config, class Visit>
void for_each_option(Config& c, Visit visit) {
  for_each_model_option(c.model, visit);
  for_each_routing_option(c.model.routing, visit);
  for_each_experts_option(c.model.experts, visit);
  for_each_data_option(c.data, visit);
  for_each_train_option(c.train, visit);
}

// Sets the options that the file names. Unknown sections and keys, and values of another type, are errors that name
// file, line and key.
void read_toml(const fs::path& path, RunConfig& config);
// The same of sections {"model": {"hidden_size": 64}} that stand at `pointer` in a file of more.
void set_options(RunConfig& config, const TomlFile& file, const nlohmann::json& sections, const std::string& pointer);
// One option. False: there is no such option. `place` begins the message of a value of another type.
bool set_option(RunConfig& config, std::string_view section, std::string_view key, const nlohmann::json& value,
                const std::string& place);

// The options that are not at their default, by section; and as a file that read_toml takes.
nlohmann::json changed_options(const RunConfig& config);
std::string options_to_toml(const RunConfig& config);

// The whole list with its values, for the checkpoint; and back. Options that the JSON lacks keep their value, so that
// checkpoints of earlier versions are read: the default of a new option must do what was done before it.
nlohmann::json options_to_json(const RunConfig& config);
void options_from_json(const nlohmann::json& json, RunConfig& config);

inline constexpr int64_t kMostSequences = 1'000'000'000'000'000;  // of a run: counts of rows stay far below 2^63

// Of a run as it was given: check_unused of its model, and the same of [data] and [train] beside it.
void check_unused(const RunConfig& config);
// Checks ranges, and that a text and exactly one budget are given. Throws Error naming key, value and expectation.
void check_options(const RunConfig& config);
// Of these, what a plan needs: ranges, and no more than one budget.
void check_ranges(const RunConfig& config);

}  // namespace isobath
