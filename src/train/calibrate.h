// Moves the causal rule of a trained model, layer by layer, until it routes the share of a text that it should.
//
// A rule that was learned on training text may route too few or too many rows of another text, and every layer sees
// what the layers before it left out. So each layer's offset is set with the layers before it calibrated and choosing
// causally, as in generation: the router of a routed block first, then the rules of its experts, of the rows that it
// let through.
#pragma once

#include <functional>
#include <vector>

#include "train/evaluate.h"

namespace isobath {

// The number to add to logits so that as near as can be to `share` of them lie above 0. Equal logits stay together: the
// nearer side of a tie is taken. 0 and 1 mean no row and every row of any text: -infinity and infinity.
float offset_for_share(std::vector<float> logits, double share);

struct CalibratedLayer {
  Section section = {};
  double target = 0, before = 0, after = 0;  // shares of the text by the causal rule
  float offset = 0;
};
// The experts of a block, each of which has a rule of its own.
struct CalibratedExperts {
  int64_t block = 0;
  double target = 0;  // share of each, of the rows that come to the block's experts
  LayerExperts before = {}, after = {};
  std::vector<float> offset = {};  // (E)
};
struct Calibration {
  Evaluation top_k;          // the choice of training: calibration does not change it
  Evaluation before, after;  // by the rule
  std::vector<CalibratedLayer> layer;
  std::vector<CalibratedExperts> experts;
};

struct CalibrationShares {
  std::vector<double> routed = {};   // one per router
  std::vector<double> experts = {};  // one per block, if experts choose: what each of them takes
};

// Sets the offsets of every router and of every expert that chooses. `model` has them (router_offset, experts_offset),
// a causal rule, and packed products; shares are in [0,1]. Experts to which no row came keep an offset of 0. `progress`
// hears of passes over the text.
Calibration calibrate(Model& model, Evaluator& evaluator, const CalibrationShares& shares, int64_t windows = 0,
                      const std::function<void(int64_t done, int64_t of)>& progress = {});

}  // namespace isobath
