// The stack: embedding, blocks, norm, head. One definition for training, evaluation and generation; they differ in the
// selection and in whether keys come from a cache.
#pragma once

#include <cstdint>
#include <vector>

#include "model/activations.h"
#include "model/kv.h"
#include "model/selection.h"
#include "model/weights.h"

namespace isobath {

// Blocks over a batch: leaves the residual stream in acts.x, before the last norm. `cache` may be empty.
void forward_blocks(const Weights& weights, const Products& products, Activations& acts, const ModelConfig& config,
                    const Batch& batch, const Selection& how, const KvCache& cache = {});

// Logits (rows, V) of the listed rows of acts.x: last norm and head.
void forward_logits(F32 logits, const Weights& weights, const Products& products, Activations& acts,
                    const ModelConfig& config, CI32 rows);

// Loss and entropy of every row into acts.loss and acts.entropy, in chunks: the batch's logits are never in memory
// together. Returns the sum of the losses of the scored rows in float64, rows in order.
double forward_loss(const Weights& weights, const Products& products, Activations& acts, const ModelConfig& config,
                    const Batch& batch);

// What loss sums are divided by: the targets, rows and capacity runs of the whole optimizer step, known before its
// first micro-batch.
struct StepScale {
  int64_t targets;
  int64_t rows;
  int64_t runs = 1;
};

// One micro-batch of training: forward by top-k, loss, backward. Gradients are added to `gradient`. Returns the loss
// sum as forward_loss does; if that is not finite, there is no backward pass. Routing statistics are in
// acts.section[l].router.
double forward_backward(const Weights& weights, Weights& gradient, const Products& products, Activations& acts,
                        const ModelConfig& config, const Batch& batch, const Selection& how, const StepScale& scale);

}  // namespace isobath
