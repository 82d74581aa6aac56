#include "train/calibrate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace isobath {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Parts the sorted logits behind the first `count`: halfway to the next one.
float offset_behind(const std::vector<float>& falling, size_t count) {
  if (count == 0) return falling[0] == kInfinity ? -kInfinity : -falling[0];
  if (count == falling.size()) return std::nextafter(-falling.back(), kInfinity);
  const double middle = (double(falling[count - 1]) + double(falling[count])) / 2;
  const float offset = float(-middle);
  // Neighbours of fp32 leave no room between them: the lower one itself parts.
  const bool parts = falling[count - 1] + offset > 0 && !(falling[count] + offset > 0);
  return parts ? offset : -falling[count];
}

}  // namespace

float offset_for_share(std::vector<float> logits, double share) {
  require(share >= 0 && share <= 1, "calibrate: a share of {}, expected 0 to 1", share);
  require(!logits.empty(), "calibrate: the text has no rows");
  if (share == 0) return -kInfinity;
  if (share == 1) return kInfinity;
  std::sort(logits.begin(), logits.end(), std::greater<>());
  const size_t all = logits.size(), wanted = size_t(std::llround(share * double(all)));
  if (wanted == 0 || wanted == all || logits[wanted - 1] != logits[wanted]) return offset_behind(logits, wanted);
  size_t fewer = wanted, more = wanted;  // without the tie, and with all of it
  while (fewer > 0 && logits[fewer - 1] == logits[wanted]) fewer--;
  while (more < all && logits[more] == logits[wanted]) more++;
  return offset_behind(logits, wanted - fewer <= more - wanted ? fewer : more);
}

namespace {

// Looks at what passes over the text leave.
using Pass = std::function<Evaluation(SelectBy by, const std::function<void(const Activations&, int64_t rows)>& look)>;

void calibrate_router(Model& model, const Section& section, double share, const Pass& pass, Calibration& result) {
  float& offset = model.weights.weights().section[size_t(section.index)].router.offset[0];
  offset = 0;
  std::vector<float> logits;
  pass(SelectBy::kCausal, [&](const Activations& acts, int64_t rows) {
    const float* logit = acts.section[size_t(section.index)].router.logit.data;
    logits.insert(logits.end(), logit, logit + rows);
  });
  offset = offset_for_share(std::move(logits), share);
  const double before = result.before.layer[result.layer.size()].share();
  result.layer.push_back({.section = section, .target = share, .before = before, .after = 0, .offset = offset});
}

void calibrate_experts(Model& model, const Section& section, double share, const Pass& pass, Calibration& result) {
  const F32 offset = model.weights.weights().section[size_t(section.index)].expert_offset;
  const int64_t E = offset.numel();
  std::vector<std::vector<float>> logits(size_t(E), std::vector<float>{});
  pass(SelectBy::kCausal, [&](const Activations& acts, int64_t) {
    const SectionActs& b = acts.section[size_t(section.index)];
    for (int64_t s = 0; s < b.list.rows; s++)
      for (int64_t e = 0; e < E; e++) logits[size_t(e)].push_back(b.experts.logit.row(s)[e]);
  });
  for (int64_t e = 0; e < E; e++)
    offset[e] = logits[size_t(e)].empty() ? 0 : offset_for_share(std::move(logits[size_t(e)]), share);
  result.experts.push_back({.block = section.block,
                            .target = share,
                            .before = result.before.experts[result.experts.size()],
                            .offset = {offset.data, offset.data + E}});
}

void check(const ModelConfig& c, const CalibrationShares& shares) {
  const bool routed = c.routed_blocks() > 0;
  require(c.has_causal_rule() && (routed || c.experts_choose()) && (!routed || c.routing.router_offset) &&
              (!c.experts_choose() || c.experts.offset),
          "calibrate: a model with offsets and a causal rule expected");
  require(int64_t(shares.routed.size()) == c.routers(), "calibrate: {} shares for {} routers", shares.routed.size(),
          c.routers());
  const int64_t blocks = c.experts_choose() ? c.num_hidden_layers : 0;
  require(int64_t(shares.experts.size()) == blocks, "calibrate: {} shares for the experts of {} blocks",
          shares.experts.size(), blocks);
}

}  // namespace

Calibration calibrate(Model& model, Evaluator& evaluator, const CalibrationShares& shares, int64_t windows,
                      const std::function<void(int64_t done, int64_t of)>& progress) {
  const ModelConfig& c = model.config();
  check(c, shares);
  const int64_t all = int64_t(shares.routed.size() + shares.experts.size()) + 3;
  int64_t passes = 0;
  const Pass pass = [&](SelectBy by, const std::function<void(const Activations&, int64_t)>& look) {
    Evaluation evaluation = evaluator.run(model, {.by = by}, windows, {}, {}, look);
    if (progress) progress(++passes, all);
    return evaluation;
  };
  Calibration result{
      .top_k = pass(SelectBy::kTopK, {}), .before = pass(SelectBy::kCausal, {}), .after{}, .layer{}, .experts{}};
  for (int64_t l = 0; l < c.sections(); l++) {
    const Section section = c.section(l);
    if (section.routed) calibrate_router(model, section, shares.routed[result.layer.size()], pass, result);
    if (section.mlp() && c.experts_choose())
      calibrate_experts(model, section, shares.experts[result.experts.size()], pass, result);
  }
  result.after = pass(SelectBy::kCausal, {});
  for (size_t i = 0; i < result.layer.size(); i++) result.layer[i].after = result.after.layer[i].share();
  for (size_t i = 0; i < result.experts.size(); i++) result.experts[i].after = result.after.experts[i];
  return result;
}

}  // namespace isobath
