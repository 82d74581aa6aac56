// Moves the causal rule of a trained model, layer by layer, until it routes the share of a text that it should.
//
// A rule that was learned on training text may route too few or too many rows of another text, and every layer sees
// what the layers before it left out. So each layer's offset is set with the layers before it calibrated and choosing
// causally, as in generation.
#pragma once

#include <functional>
#include <span>
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
struct Calibration {
  Evaluation top_k;          // the choice of training: calibration does not change it
  Evaluation before, after;  // by the rule
  std::vector<CalibratedLayer> layer;
};

// Sets the offset of every router. `model` has router_offset, a causal rule, and packed products; `shares` has
// one entry per router, in [0,1]. `progress` hears of passes over the text.
Calibration calibrate(Model& model, Evaluator& evaluator, std::span<const double> shares, int64_t windows = 0,
                      const std::function<void(int64_t done, int64_t of)>& progress = {});

}  // namespace isobath
