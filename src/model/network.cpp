#include "model/network.h"

#include <cmath>

#include "base/error.h"
#include "model/routed.h"
#include "model/section.h"
#include "ops/cross_entropy.h"
#include "ops/embedding.h"
#include "ops/rmsnorm.h"
#include "ops/router.h"

namespace isobath {
namespace {

// Everything a pass needs, under one name.
struct Pass {
  const Weights& weights;
  const Products& products;
  Activations& acts;
  const ModelConfig& config;
  const Batch& batch;
  const Selection how;
  double expert_run_scale = 0;  // of training

  F32 x() const { return acts.x.slice(0, batch.rows()); }
  F32 dx() const { return acts.dx.slice(0, batch.rows()); }
  SectionContext section(int64_t l) const {
    return {config, config.section(l), weights.section[size_t(l)], products.section(l), acts.rope, acts.scratch, batch,
            how,    expert_run_scale};
  }
  RouterContext router(int64_t l) const {
    return {config, config.section(l), weights.section[size_t(l)].router, products.section(l).fc1, acts.scratch};
  }
};

void check_batch(const Pass& p) {
  const BatchLimits& limits = p.acts.limits();
  const int64_t N = p.batch.rows(), runs = std::max(limits.runs(), limits.sequences);
  require(N <= limits.rows(), "forward: the batch has {} rows, the buffers were planned for {}", N, limits.rows());
  require(p.batch.capacity_begin.numel() - 1 <= runs && p.batch.segment_begin.numel() - 1 <= runs,
          "forward: the batch has {} documents, the buffers were planned for {}",
          std::max(p.batch.capacity_begin.numel(), p.batch.segment_begin.numel()) - 1, runs);
}

// Where a training pass puts the gradients of the auxiliary losses, which are finished on the way forward.
struct Auxiliary {
  Weights* gradient = nullptr;  // null: not training
  AuxiliaryScale scale = {};
};

// f(section) for the routers whose predictors read the input of this section's block.
template <class F>
void for_readers(const ModelConfig& config, const Section& section, F f) {
  if (!config.predictors_look_back() || section.part == Part::kMlp) return;
  for (int64_t s = section.index; s < config.sections(); s++)
    if (const Section reader = config.section(s); reader.routed && config.predictor_reads(reader) == section.block)
      f(reader.index);
}

void run_blocks(const Pass& p, const KvCache& cache, const Auxiliary& auxiliary) {
  check_batch(p);
  embedding_forward(p.x(), p.batch.token, p.weights.embed);
  for (int64_t l = 0; l < p.config.sections(); l++) {
    SectionActs& b = p.acts.section[size_t(l)];
    const auto inner = [&](CF32 x, const RowList& list) {
      return section_forward(p.section(l), b, x, list, cache.layer(l));
    };
    for_readers(p.config, p.config.section(l),
                [&](int64_t s) { predict_ahead(p.router(s), p.acts.section[size_t(s)].router, p.x()); });
    if (!p.config.section(l).routed) {
      dense_forward(p.x(), p.batch, inner);
      continue;
    }
    routed_forward(p.x(), p.router(l), b.router, b.delta, p.batch, p.how, [&](CF32 x, const RowList& list) {
      if (auxiliary.gradient != nullptr)
        auxiliary_loss(p.router(l), auxiliary.gradient->section[size_t(l)].router, b.router, x, p.batch,
                       auxiliary.scale);
      return inner(x, list);
    });
  }
}

void backward_blocks(const Pass& p, Weights& gradient) {
  for (int64_t l = p.config.sections() - 1; l >= 0; l--) {
    SectionActs& b = p.acts.section[size_t(l)];
    SectionWeights& g = gradient.section[size_t(l)];
    const auto inner_backward = [&](F32 ddelta) { return section_backward(p.section(l), b, g, ddelta, p.x(), p.dx()); };
    const int64_t S = b.list.rows;
    const bool last = l + 1 == p.config.sections();  // its buffers are still as its forward pass left them
    // The gradients of a normed score, of a predictor that looks back and of all rows' keys need the stream as they
    // read it. Going back, each section takes from it what it added: rows that it did not choose passed unchanged, the
    // others were saved.
    if (p.config.restores_stream()) restore_rows(p.x(), b.list.index, b.saved.slice(0, S));
    if (p.acts.recomputes() && !last) section_forward_again(p.section(l), b, p.x());
    for_readers(p.config, p.config.section(l), [&](int64_t s) {
      predictor_backward_ahead(p.router(s), gradient.section[size_t(s)].router, p.acts.section[size_t(s)].router,
                               p.x());
    });
    if (p.config.section(l).routed)
      routed_backward(p.dx(), p.router(l), g.router, b.router, b.delta.slice(0, S), b.saved.slice(0, S), p.x(),
                      inner_backward);
    else
      dense_backward(p.dx(), p.acts.scratch, inner_backward);
  }
}

// The last norm, head and loss of rows [begin, begin + count), and with `gradient` their backward into dx.
void head_chunk_loss(const Pass& p, int64_t begin, int64_t count, Weights* gradient, float scale) {
  Scratch& s = p.acts.scratch;
  const F32 normed = s.chunk_normed.slice(0, count), logits = s.logits.slice(0, count);
  const F32 rstd = s.chunk_rstd.slice(0, count);
  const RmsNormIn in{.x = p.x().slice(begin, count), .index = {}, .add = {}};
  rmsnorm_forward(normed, rstd, {}, in, p.weights.norm, float(p.config.rms_norm_eps));
  p.products.head().forward(logits, normed);  // (chunk,V)
  cross_entropy(logits, p.acts.loss.slice(begin, count), p.acts.entropy.slice(begin, count),
                p.batch.target.slice(begin, count), scale);
  if (gradient == nullptr) return;
  const F32 dhead = gradient->head.empty() ? gradient->embed : gradient->head;
  const F32 dx = p.dx().slice(begin, count);
  p.products.head().backward_weight(add_to(dhead), logits, normed);
  p.products.head().backward_input(dx, logits);
  rmsnorm_backward(dx, add_to(gradient->norm), dx, in.x, p.weights.norm, rstd,
                   s.partial.reshaped({kGradChunks, p.config.hidden_size}));
}

double head_loss(const Pass& p, Weights* gradient, float scale) {
  const int64_t N = p.batch.rows(), chunk = p.acts.scratch.logits.rows();
  for (int64_t begin = 0; begin < N; begin += chunk)
    head_chunk_loss(p, begin, std::min(chunk, N - begin), gradient, scale);
  double sum = 0;
  for (int64_t n = 0; n < N; n++) sum += double(p.acts.loss[n]);
  return sum;
}

}  // namespace

void forward_blocks(const Weights& weights, const Products& products, Activations& acts, const ModelConfig& config,
                    const Batch& batch, const Selection& how, const KvCache& cache) {
  run_blocks({weights, products, acts, config, batch, how}, cache, {});
}

void forward_logits(F32 logits, const Weights& weights, const Products& products, Activations& acts,
                    const ModelConfig& config, CI32 rows) {
  Scratch& s = acts.scratch;
  const int64_t chunk = s.logits.rows();
  for (int64_t begin = 0; begin < rows.numel(); begin += chunk) {
    const int64_t count = std::min(chunk, rows.numel() - begin);
    const F32 normed = s.chunk_normed.slice(0, count);
    rmsnorm_forward(normed, s.chunk_rstd.slice(0, count), {},
                    {.x = acts.x, .index = rows.slice(begin, count), .add = {}}, weights.norm,
                    float(config.rms_norm_eps));
    products.head().forward(logits.slice(begin, count), normed);
  }
}

double forward_loss(const Weights& weights, const Products& products, Activations& acts, const ModelConfig& config,
                    const Batch& batch) {
  return head_loss({weights, products, acts, config, batch, {}}, nullptr, 0);
}

double forward_backward(const Weights& weights, Weights& gradient, const Products& products, Activations& acts,
                        const ModelConfig& config, const Batch& batch, const Selection& how, const StepScale& scale) {
  const double experts = double(config.num_hidden_layers) * double(scale.runs);
  const Pass p{weights, products, acts, config, batch, how, 1 / experts};
  const double routed = double(std::max<int64_t>(1, config.routers()));
  run_blocks(p, {},
             {.gradient = &gradient,
              .scale = {.per_row = 1 / (routed * double(scale.rows)), .per_run = 1 / (routed * double(scale.runs))}});
  const double loss = head_loss(p, &gradient, float(1.0 / double(std::max<int64_t>(1, scale.targets))));
  if (!std::isfinite(loss)) return loss;  // the step fails; what the pass left says where
  backward_blocks(p, gradient);
  embedding_backward(add_to(gradient.embed), p.dx(), batch.token);
  return loss;
}

}  // namespace isobath
