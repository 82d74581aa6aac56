#include "lab/capacity_chart.h"

#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>

#include "lab/chart_parts.h"
#include "lab/record.h"

namespace isobath {
namespace {

struct RoutedAs {
  std::string how;  // "learned, every 2"
  double capacity = 0;
};

// By the options that it had, changed or not. None for dense models and for capacities that differ between blocks.
std::optional<RoutedAs> routed_as(const RecipeSummary& r) {
  const ModelConfig model = options_of(*r.first).model;
  const RoutingConfig& routing = model.routing;
  if (model.routed_blocks() == 0 || routing.capacity.size() != 1 ||
      routing.capacity_schedule != CapacitySchedule::kConstant)
    return {};
  std::string how = name_of(routing.router);
  how += routing.blocks.empty() ? fmt::format(", every {}", routing.every)
                                : fmt::format(", blocks {}", fmt::join(routing.blocks, " "));
  if (routing.blocks.empty() && routing.start >= 0 && routing.start != routing.every - 1)
    how += fmt::format(" from {}", routing.start);
  if (routing.topology != Topology::kJoint) how += std::string(", ") + name_of(routing.topology);
  return RoutedAs{how, routing.capacity[0]};
}

}  // namespace

Figure loss_against_capacity(const Recipes& all) {
  Figure figure{"capacity",
                "Loss against capacity and frequency",
                "Routed models by the share of tokens that a routed block takes; a line per frequency and router. "
                "`random` is the control: routing that knows nothing of the text.",
                {}};
  using Place = std::pair<std::string, double>;  // series, capacity
  std::map<Place, const RecipeSummary*> best;
  std::set<Place> ways;
  std::set<double> capacities;
  size_t routed = 0;
  for (const RecipeSummary& r : all) {
    const auto as = routed_as(r);
    if (!as) continue;
    routed++;
    ways.emplace(as->how, as->capacity);
    capacities.insert(as->capacity);
    const std::string series = as->how + (r.text.empty() ? "" : ", " + r.text) + budget_suffix(all, r);
    const RecipeSummary*& at = best[{series, as->capacity}];
    if (at == nullptr || r.top_k.mean < at->top_k.mean) at = &r;
  }
  if (ways.size() < 2) return figure;
  SeriesData data;
  data.table.head = {"router, every", "capacity", "loss", "model"};
  for (const auto& [place, r] : best) {
    data.point(place.first, place.second, r->top_k, tip_of(*r));
    data.table.rows.push_back(
        {place.first, fmt::format("{}", place.second), spread_text(r->top_k, 4), row_label(all, *r)});
  }
  if (routed > best.size()) figure.note += " Of models alike in these the one that did best in mean loss is shown.";
  figure.chart = data.chart("capacity", "loss, nats per token", capacities.size() > 1, true);
  set_signal(figure.chart.spec, "x_format", ".3~f");
  return figure;
}

}  // namespace isobath
