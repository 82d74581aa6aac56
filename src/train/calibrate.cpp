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

Calibration calibrate(Model& model, Evaluator& evaluator, std::span<const double> shares, int64_t windows,
                      const std::function<void(int64_t done, int64_t of)>& progress) {
  const ModelConfig& c = model.config();
  require(c.routing.router_offset && c.has_causal_rule(), "calibrate: a model with offsets and a causal rule expected");
  require(int64_t(shares.size()) == c.routers(), "calibrate: {} shares for {} routers", shares.size(), c.routers());
  int64_t passes = 0;
  const auto pass = [&](SelectBy by, const std::function<void(const Activations&, int64_t)>& look) {
    Evaluation evaluation = evaluator.run(model, {.by = by}, windows, {}, {}, look);
    if (progress) progress(++passes, c.routers() + 3);
    return evaluation;
  };
  Calibration result{.top_k = pass(SelectBy::kTopK, {}), .before = pass(SelectBy::kCausal, {}), .after{}, .layer{}};
  for (int64_t l = 0; l < c.sections(); l++) {
    const Section section = c.section(l);
    if (!section.routed) continue;
    const size_t i = result.layer.size();
    float& offset = model.weights.weights().section[size_t(l)].router.offset[0];
    offset = 0;
    std::vector<float> logits;
    pass(SelectBy::kCausal, [&](const Activations& acts, int64_t rows) {
      const float* logit = acts.section[size_t(l)].router.logit.data;
      logits.insert(logits.end(), logit, logit + rows);
    });
    offset = offset_for_share(std::move(logits), shares[i]);
    result.layer.push_back({.section = section,
                            .target = shares[i],
                            .before = result.before.layer[i].share(),
                            .after = 0,
                            .offset = offset});
  }
  result.after = pass(SelectBy::kCausal, {});
  for (size_t i = 0; i < result.layer.size(); i++) result.layer[i].after = result.after.layer[i].share();
  return result;
}

}  // namespace isobath
