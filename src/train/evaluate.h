// Loss on held-out text: windows of T in order, each token scored once. By top-k as in training, or by the causal rule
// as in generation; the same bits for any number of windows at a time and any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/model.h"
#include "model/network.h"
#include "text/loader.h"

namespace isobath {

struct LayerRouting {
  Section section = {};
  int64_t routed = 0, rows = 0;  // rows that went through, of all
  int64_t dropped = 0;           // rows that wanted to (choice = token, within capacity)
  Agreement agreement = {};      // of the causal rule with top-k, where top-k chose
  double share() const { return rows ? double(routed) / double(rows) : 0; }
};

// What the experts of a block were given.
struct LayerExperts {
  int64_t block = 0;
  std::vector<int64_t> expert_rows = {};  // (E) rows that each worked on
  int64_t rows = 0;                       // that came to the router
  int64_t dropped = 0;                    // choices that found their expert full
  int64_t no_ops = 0;                     // rows that took a no-op
  double loss_sum = 0;                    // of the expert router, summed over capacity runs; in training
  Agreement agreement = {};               // of experts_causal with the choice of training; counts (row, expert)
  int64_t assigned() const;
  double share(size_t e) const { return rows ? double(expert_rows[e]) / double(rows) : 0; }
  double no_op_share() const { return rows ? double(no_ops) / double(rows) : 0; }
  double dropped_share() const { return dropped ? double(dropped) / double(dropped + assigned()) : 0; }
  double busiest() const;  // the most rows that an expert got, over the mean of all experts
  LayerExperts& operator+=(const LayerExperts& other);  // sums of layers; expert for expert
};

struct Evaluation {
  double loss = 0;     // nats per scored token
  double entropy = 0;  // of the predictions, nats per row
  int64_t targets = 0;
  int64_t rows = 0;
  int64_t windows = 0;
  std::vector<LayerRouting> layer;         // one per routed section
  std::vector<LayerExperts> experts = {};  // one per block, if it has experts
  bool complete = true;                    // false: stopped before the last window
};

class Evaluator {
 public:
  // options.B windows of T tokens at a time, or as many as the text has.
  Evaluator(const ModelConfig& config, TokenStream text, const LoaderOptions& options);

  int64_t rows() const { return acts_.limits().rows(); }  // Products must take lists of so many rows
  int64_t windows() const { return loader_.eval_sequences(); }

  // Throws Error{kWork} where the loss is not finite.
  // So many windows, spread evenly over the text (0: all). `progress`, if given, hears of windows done; `stop`, if
  // given, ends the evaluation when it says so; `on_batch`, if given, sees what each pass left.
  Evaluation run(const Model& model, const Selection& how, int64_t windows = 0,
                 const std::function<void(int64_t done, int64_t of)>& progress = {},
                 const std::function<bool()>& stop = {},
                 const std::function<void(const Activations& acts, int64_t rows)>& on_batch = {});

 private:
  struct Fitted {};  // to the text
  Evaluator(const ModelConfig& config, TokenStream text, const LoaderOptions& options, Fitted);

  Loader loader_;
  int64_t batch_;
  Activations acts_;
};

// Adds what the routers of a pass did. `layer` has one entry per routed block.
void add_routing(std::vector<LayerRouting>& layer, const ModelConfig& config, const Activations& acts, int64_t rows);

// Adds what the experts of a pass did.
void add_experts(std::vector<LayerExperts>& experts, const ModelConfig& config, const Activations& acts);

// The limits of batches that a loader with these options makes.
BatchLimits limits_of(const LoaderOptions& options);

}  // namespace isobath
