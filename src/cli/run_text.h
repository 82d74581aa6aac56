// How runs are told to people: one place, so that commands agree.
#pragma once

#include <string>

#include "train/trainer.h"

namespace isobath::cli {

// What is about to be trained, on what, for how long; several lines.
std::string banner(const Trainer& trainer, const Corpus& corpus, const MachinePeak& peak);
// loss, norm, rate, routed share, agreement of the causal rule, speed: the part behind the progress bar.
std::string step_line(const StepRecord& record);
// Validation losses, shares and agreement.
std::string eval_line(const EvalRecord& record);
// "joint, every 2nd of 6 blocks, capacity 12.5%, raw gate, learned router, causal rule bce" or "dense"
std::string routing_text(const ModelConfig& config);
// share and agreement of one layer: "block 3  share 12.1%  accuracy 96.4% (base 87.5%)  precision ..."
std::string layer_line(const LayerRouting& layer);
// share of rows by expert: "block 3  experts 24.1% 30.2% ...  skipped 3.1%  dropped 0.4%"
std::string experts_line(const LayerExperts& experts);
std::string padded_name(const Section& section);  // as wide as those of the other sections of its kind

}  // namespace isobath::cli
