#include "lab/study_specs.h"

namespace isobath {

const char* const kSeries = R"json({
  "height": 340, "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "x_title", "value": ""}, {"name": "y_title", "value": ""}, {"name": "x_format", "value": ".2s"},
    {"name": "y_format", "value": ".3f"}, {"name": "join", "value": true},
    {"name": "label_width", "value": 100}],
  "scales": [
    {"name": "x", "type": "linear", "domain": {"fields": [{"data": "points", "field": "x"}, {"data": "lines",
     "field": "x"}]}, "range": "width", "zero": false, "nice": false, "padding": 14},
    {"name": "y", "type": "linear", "domain": {"fields": [{"data": "points", "field": "low"}, {"data": "points",
     "field": "high"}, {"data": "lines", "field": "y"}]}, "range": "height", "zero": false, "nice": true},
    {"name": "color", "type": "ordinal", "domain": {"data": "series", "field": "name"}, "range": ["#3b7dc4", "#d8782a",
     "#2f9e77", "#b5559b", "#8a8f2b", "#5fa8d3", "#c4504b", "#7a6bc0", "#9a7b4f", "#4d8b8b", "#a0a0a0", "#d09ac0"]}
  ],
  "axes": [
    {"orient": "bottom", "scale": "x", "title": {"signal": "x_title"}, "tickCount": 7, "labelOverlap": true,
     "encode": {"labels": {"update": {"text": {"signal": "replace(format(datum.value, x_format), 'e+', 'e')"}}}}},
    {"orient": "left", "scale": "y", "title": {"signal": "y_title"}, "grid": true, "domain": false, "ticks": false,
     "tickCount": 7, "labelPadding": 6, "titlePadding": 10, "encode": {"labels": {"update": {"text": {"signal":
     "replace(format(datum.value, y_format), 'e+', 'e')"}}}}}
  ],
  "legends": [{"fill": "color", "symbolType": "circle", "orient": "top", "direction": "horizontal", "columns":
    {"signal": "clamp(floor(width / label_width), 1, 4)"}, "labelLimit": 400, "title": null}],
  "marks": [
    {"type": "group", "from": {"facet": {"name": "curve", "data": "lines", "groupby": "series"}},
     "encode": {"update": {"width": {"signal": "width"}, "height": {"signal": "height"}}},
     "marks": [{"type": "line", "interactive": false, "from": {"data": "curve"}, "encode": {"update": {
      "x": {"scale": "x", "field": "x"}, "y": {"scale": "y", "field": "y"},
      "stroke": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 1.5},
      "strokeOpacity": {"value": 0.6}}}}]},
    {"type": "group", "from": {"facet": {"name": "joined", "data": "points", "groupby": "series"}},
     "encode": {"update": {"width": {"signal": "width"}, "height": {"signal": "height"}}},
     "marks": [{"type": "line", "interactive": false, "from": {"data": "joined"}, "encode": {"update": {
      "x": {"scale": "x", "field": "x"}, "y": {"scale": "y", "field": "y"},
      "stroke": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 1.5},
      "strokeOpacity": {"signal": "join ? 0.7 : 0"}}}}]},
    {"type": "rule", "from": {"data": "points"}, "encode": {"update": {"x": {"scale": "x", "field": "x"},
      "y": {"scale": "y", "field": "low"}, "y2": {"scale": "y", "field": "high"},
      "stroke": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 1.5}}}},
    {"type": "symbol", "style": "card", "from": {"data": "points"}, "encode": {"update": {
      "x": {"scale": "x", "field": "x"}, "y": {"scale": "y", "field": "y"}, "size": {"value": 60},
      "fill": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 1}, "tooltip": {"field": "tip"}}}},
    {"type": "rule", "from": {"data": "optima"}, "encode": {"update": {"x": {"scale": "x", "field": "low"},
      "x2": {"scale": "x", "field": "high"}, "y": {"scale": "y", "field": "y"},
      "stroke": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 2}}}},
    {"type": "symbol", "style": "ink", "from": {"data": "optima"}, "encode": {"update": {
      "x": {"scale": "x", "field": "x"}, "y": {"scale": "y", "field": "y"}, "size": {"value": 120},
      "shape": {"value": "diamond"}, "fill": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 1},
      "tooltip": {"field": "tip"}}}}
  ]
})json";

const char* const kDots = R"json({
  "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "rows", "value": 1}, {"name": "x_title", "value": ""}, {"name": "x_format", "value": ".3f"},
    {"name": "height", "update": "rows * 26 + 60"}],
  "scales": [
    {"name": "y", "type": "band", "domain": {"data": "dots", "field": "label"}, "range": "height", "padding": 0.15},
    {"name": "inner", "type": "point", "domain": {"data": "series", "field": "name"}, "range": [{"signal":
     "bandwidth('y') * 0.25"}, {"signal": "bandwidth('y') * 0.75"}], "padding": 0.3},
    {"name": "x", "type": "linear", "domain": {"fields": [{"data": "dots", "field": "low"}, {"data": "dots",
     "field": "high"}]}, "range": "width", "zero": false, "nice": true, "padding": 8},
    {"name": "color", "type": "ordinal", "domain": {"data": "series", "field": "name"}, "range": ["#3b7dc4", "#d8782a",
     "#2f9e77"]}
  ],
  "legends": [{"fill": "color", "symbolType": "circle", "orient": "top", "direction": "horizontal", "title": null}],
  "axes": [
    {"orient": "bottom", "scale": "x", "title": {"signal": "x_title"}, "grid": true, "tickCount": 7,
     "labelOverlap": true, "encode": {"labels": {"update": {"text": {"signal":
     "replace(format(datum.value, x_format), 'e+', 'e')"}}}}},
    {"orient": "left", "scale": "y", "domain": false, "ticks": false, "labelPadding": 8, "labelLimit": 320}
  ],
  "marks": [
    {"type": "rule", "from": {"data": "dots"}, "encode": {"update": {"y": {"scale": "y", "field": "label",
      "offset": {"scale": "inner", "field": "series"}}, "x": {"scale": "x", "field": "low"},
      "x2": {"scale": "x", "field": "high"}, "stroke": {"scale": "color", "field": "series"},
      "strokeWidth": {"value": 2}, "strokeOpacity": {"value": 0.7}}}},
    {"type": "symbol", "style": "card", "from": {"data": "dots"}, "encode": {"update": {"y": {"scale": "y",
      "field": "label", "offset": {"scale": "inner", "field": "series"}}, "x": {"scale": "x", "field": "x"},
      "size": {"value": 90}, "fill": {"scale": "color", "field": "series"}, "strokeWidth": {"value": 1},
      "tooltip": {"field": "tip"}}}}
  ]
})json";

}  // namespace isobath
