// A study: a TOML file that names many runs, and the list of them. Every run spends the same training FLOPs, or reads
// as many tokens.
//
//   [study]
//   flops = [1e13, 3e13]          # budgets: every model gets each; or tokens = [1e6, 3e6]
//   seeds = [1, 2, 3]
//   [model] [routing] [experts] [data] [train]   # what the runs share, as in a config of `isobath train`
//   [[size]]                      # named sets of changes; a run has one of each kind
//   name = "width 64"
//   model.hidden_size = 64
//   [[variant]]
//   name = "dense"
//   routing.topology = "dense"
//   [grid]                        # and one value of each key
//   routing.capacity = [0.125, 0.5]
//
// Rules in the place of shapes: [study] parameters = [1e5, 2e5] makes a size of each number; flops_as = "dense" in a
// variant gives it the depth at which it has the FLOPs per forward pass of that variant at the same size, and
// flops_as = "best dense" those of the dense model that did best at the same budget in an earlier study, whose width it
// takes (the paper's recipe). [study] learning_rates = "best" takes the rates of an earlier study, by budget, width
// and variant.
//
// The list is a function of the file alone. Seeds change slowest, so that a study that was stopped early holds whole
// comparisons; then budgets, sizes, the grid, variants.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/flops.h"
#include "text/tokenizer.h"
#include "train/options.h"

namespace isobath {

struct Change {
  std::string section, key;
  nlohmann::json value;
  std::string place;  // in the file
  std::string name() const { return section + "." + key; }
};

// One point of an axis of the study.
struct StudyPoint {
  std::string name;
  std::vector<Change> changes;
  double parameters = 0;  // of a size: its shape follows from this number (lab/shapes.h); 0: no
  std::string flops_as;   // of a variant: its depth follows from the FLOPs per forward pass of this one, or of kBest
};
inline constexpr const char* kBest = "best dense";  // of the study that went before, at the same budget

struct Study {
  std::string name;  // of the file
  std::string title;
  std::vector<double> budgets;
  bool in_tokens = false;  // the budgets, else in training FLOPs
  std::vector<uint64_t> seeds{1};
  bool keep_checkpoints = false;
  bool best_rates = false;            // learning rates: those that did best in the study that went before
  std::vector<nlohmann::json> after;  // records of earlier studies (lab/study_after.h); not of the file
  RunConfig base;
  std::vector<StudyPoint> sizes, variants;
  std::vector<std::vector<StudyPoint>> grid;  // by key
};

// Throws Error naming file, line and key for unknown keys, values of another type, and budgets or seeds that stand
// among the options of a run.
Study read_study(const fs::path& path);

struct PlannedRun {
  std::string name;           // 16 hexadecimal digits: the hash of `changed`
  std::string recipe;         // the same without the seed: runs that differ by it alone share this
  std::string size, variant;  // names of its points; empty where the study has none
  nlohmann::json changed;     // the options that decide its result, as far as they are not at their default
  nlohmann::json grid;        // {"routing.capacity": 0.125}
  RunConfig config;           // train.out is not set
  int64_t parameters = 0;
  double flops_per_token = 0;        // forward
  double dense_flops_per_token = 0;  // of the same model without routing
  Budget budget;                     // with document scopes: of whole sequences, near what the text will give
  int64_t tokens() const { return budget.sequences(config.data.batch) * config.data.context; }
  // What the study gives to it: training FLOPs or tokens.
  double asked() const { return config.train.flops > 0 ? config.train.flops : double(config.train.tokens); }
  std::string label() const;  // "joint, width 64, capacity = 0.125, 4e+12 FLOPs, seed 1"
};

// Of a point of the grid the values that a run of these changed options shows: a dense model has no capacity.
nlohmann::json telling_values(const nlohmann::json& grid, const nlohmann::json& changed);

// One run by its options.
PlannedRun plan_run(const RunConfig& config, const Tokenizer& tokenizer);

// Runs that come out the same (a dense model at several capacities) are listed once. Throws Error naming the run for
// options that do not go together.
std::vector<PlannedRun> plan_study(const Study& study, const Tokenizer& tokenizer);

// Training time on a machine of so many GFLOP/s fp32 at most, by how near to it steps of that width come (bench train).
double predicted_seconds(const PlannedRun& run, double peak_gflop_s);

// Part `index` of `of` parts, counted from 1: every of-th run.
struct StudyPart {
  int64_t index = 1, of = 1;
  bool holds(size_t run) const { return int64_t(run) % of == index - 1; }
};
StudyPart parse_part(const std::string& text);  // "2/8"; throws Error

}  // namespace isobath
