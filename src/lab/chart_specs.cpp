#include "lab/chart_specs.h"

namespace isobath {

const char* const kLearningCurves = R"json({
  "height": 320, "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "low", "value": 0}, {"name": "high", "value": 1}],
  "scales": [
    {"name": "x", "type": "linear", "domain": {"fields": [{"data": "training", "field": "flops"},
      {"data": "validation", "field": "flops"}]}, "range": [0, {"signal": "width - 8"}], "zero": true},
    {"name": "y", "type": "linear", "domain": [{"signal": "low"}, {"signal": "high"}], "range": "height", "zero": false,
     "nice": false},
    {"name": "color", "type": "ordinal", "domain": ["dense", "MoD"], "range": "category"}
  ],
  "axes": [
    {"orient": "bottom", "scale": "x", "title": "training FLOPs", "tickCount": 6, "encode": {"labels": {"update":
      {"text": {"signal": "datum.value ? replace(format(datum.value, '.1e'), 'e+', 'e') : '0'"}}}}},
    {"orient": "left", "scale": "y", "title": "loss, nats per token", "grid": true, "domain": false, "ticks": false,
     "format": ".2f", "tickCount": 7, "labelPadding": 6, "titlePadding": 10}
  ],
  "legends": [{"stroke": "color", "symbolType": "stroke", "symbolStrokeWidth": 3, "orient": "top", "direction":
    "horizontal", "title": null}],
  "marks": [
    {"type": "rule", "clip": true, "from": {"data": "baseline"}, "encode": {"update": {"x": {"value": 0},
      "x2": {"signal": "width"}, "y": {"scale": "y", "field": "loss"}, "strokeDash": {"value": [5, 4]}}}},
    {"type": "text", "clip": true, "from": {"data": "baseline"}, "encode": {"update": {"x": {"signal": "width",
      "offset": -4}, "y": {"scale": "y", "field": "loss", "offset": -5}, "align": {"value": "right"},
      "text": {"field": "name"}}}},
    {"type": "group", "clip": true, "from": {"facet": {"name": "steps", "data": "training", "groupby": "twin"}},
     "encode": {"update": {"width": {"signal": "width"}, "height": {"signal": "height"}}},
     "marks": [{"type": "line", "interactive": false, "from": {"data": "steps"}, "encode": {"update": {
      "x": {"scale": "x", "field": "flops"}, "y": {"scale": "y", "field": "loss"},
      "stroke": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 1}, "strokeOpacity": {"value": 0.35}}}}]},
    {"type": "group", "clip": true, "from": {"facet": {"name": "points", "data": "validation", "groupby": "twin"}},
     "encode": {"update": {"width": {"signal": "width"}, "height": {"signal": "height"}}},
     "marks": [
      {"type": "line", "interactive": false, "from": {"data": "points"}, "encode": {"update": {
       "x": {"scale": "x", "field": "flops"}, "y": {"scale": "y", "field": "loss"},
       "stroke": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 2.5}}}},
      {"type": "symbol", "style": "card", "from": {"data": "points"}, "encode": {"update": {
       "x": {"scale": "x", "field": "flops"}, "y": {"scale": "y", "field": "loss"}, "size": {"value": 55},
       "fill": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 1.5}, "tooltip": {"signal":
       "datum.twin + ': ' + format(datum.loss, '.4f') + ' nats after ' + replace(format(datum.flops, '.2e'), 'e+', 'e') + ' FLOPs'"}},
       "hover": {"size": {"value": 120}}}}]}
  ]
})json";

const char* const kRoutingShares = R"json({
  "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "rows", "value": 1}, {"name": "height", "update": "rows * 34 + 46"}],
  "scales": [
    {"name": "y", "type": "band", "domain": {"data": "shares", "field": "block"}, "range": "height",
     "paddingInner": 0.35, "paddingOuter": 0.2},
    {"name": "x", "type": "linear", "domain": {"fields": [{"data": "wide", "field": "C3"}, {"data": "shares",
     "field": "share"}]}, "range": "width", "zero": true, "nice": false},
    {"name": "color", "type": "ordinal", "domain": ["dense", "MoD"], "range": "category"}
  ],
  "data": [{"name": "wide", "source": "shares", "transform": [{"type": "formula", "as": "C3", "expr":
    "min(1, 3 * datum.C)"}]}],
  "axes": [
    {"orient": "bottom", "scale": "x", "format": ".0%", "tickCount": 8,
     "title": "share of tokens that go through; band: C/3 to 3C, line: C"},
    {"orient": "left", "scale": "y", "domain": false, "ticks": false, "labelPadding": 8}
  ],
  "marks": [
    {"type": "rect", "from": {"data": "wide"}, "encode": {"update": {"y": {"scale": "y", "field": "block"},
      "height": {"scale": "y", "band": 1}, "x": {"scale": "x", "signal": "datum.C / 3"},
      "x2": {"scale": "x", "field": "C3"}, "fill": {"scale": "color", "value": "MoD"}, "fillOpacity": {"value": 0.13},
      "cornerRadius": {"value": 3}}}},
    {"type": "rule", "from": {"data": "wide"}, "encode": {"update": {"y": {"scale": "y", "field": "block"},
      "y2": {"scale": "y", "field": "block", "band": 1}, "x": {"scale": "x", "field": "C"},
      "strokeWidth": {"value": 1.5}}}},
    {"type": "symbol", "style": "card", "from": {"data": "shares"}, "encode": {"update": {
      "y": {"scale": "y", "field": "block", "band": 0.5}, "x": {"scale": "x", "field": "share"}, "size": {"value": 130},
      "fill": {"scale": "color", "value": "MoD"}, "strokeWidth": {"value": 1.5}, "tooltip": {"signal":
      "datum.block + ': ' + format(datum.share, '.1%') + ' of tokens (C = ' + format(datum.C, '.1%') + ')'"}}}}
  ]
})json";

const char* const kRouterWeights = R"json({
  "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "rows", "value": 1}, {"name": "height", "update": "rows * 92"}],
  "data": [{"name": "blocks", "source": "bins", "transform": [{"type": "aggregate", "groupby": ["block"]}]}],
  "scales": [
    {"name": "x", "type": "linear", "domain": {"fields": [{"data": "bins", "field": "low"}, {"data": "bins",
     "field": "high"}]}, "range": "width", "zero": true, "nice": false},
    {"name": "row", "type": "band", "domain": {"data": "blocks", "field": "block"}, "range": "height", "paddingInner": 0.2},
    {"name": "fill", "type": "ordinal", "domain": ["skipped", "went through"], "range": "ordinal"}
  ],
  "legends": [{"fill": "fill", "orient": "top", "direction": "horizontal", "title": null, "symbolType": "square"}],
  "axes": [{"orient": "bottom", "scale": "x", "title": "router weight r", "tickCount": 10}],
  "marks": [
    {"type": "group", "name": "panel", "from": {"facet": {"name": "panel", "data": "bins", "groupby": "block"}},
     "encode": {"update": {"y": {"scale": "row", "field": "block"}, "width": {"signal": "width"},
      "height": {"scale": "row", "band": 1}}},
     "scales": [{"name": "y", "type": "linear", "domain": {"data": "panel", "field": "to"}, "range": [{"signal":
      "bandwidth('row')"}, 16], "zero": true}],
     "marks": [
      {"type": "rect", "from": {"data": "panel"}, "encode": {"update": {"x": {"scale": "x", "field": "low",
       "offset": 0.5}, "x2": {"scale": "x", "field": "high", "offset": -0.5}, "y": {"scale": "y", "field": "to"},
       "y2": {"scale": "y", "field": "from"}, "fill": {"scale": "fill", "field": "choice"}, "tooltip": {"signal":
       "datum.block + ', r from ' + format(datum.low, '.2f') + ' to ' + format(datum.high, '.2f') + ': ' + format(datum.to - datum.from, '.1%') + ' of tokens ' + datum.choice"}}}},
      {"type": "rule", "encode": {"update": {"x": {"value": 0}, "x2": {"signal": "width"}, "y": {"signal":
       "bandwidth('row')"}, "strokeOpacity": {"value": 0.5}}}},
      {"type": "rule", "encode": {"update": {"x": {"scale": "x", "value": 0}, "y": {"value": 16}, "y2": {"signal":
       "bandwidth('row')"}, "strokeDash": {"value": [3, 3]}}}},
      {"type": "text", "encode": {"update": {"x": {"value": 0}, "y": {"value": 10}, "text": {"signal":
       "parent.block"}}}}
     ]}
  ]
})json";

const char* const kEntropyByDepth = R"json({
  "height": 230, "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "counted", "value": "routed blocks"}, {"name": "counted_of", "value": ""}],
  "scales": [
    {"name": "y", "type": "linear", "domain": {"data": "depths", "field": "p95"}, "range": "height", "zero": true,
     "nice": true},
    {"name": "x", "type": "band", "domain": {"data": "depths", "field": "depth"}, "range": "width", "padding": 0.2},
    {"name": "color", "type": "ordinal", "domain": ["dense", "MoD"], "range": "category"}
  ],
  "axes": [
    {"orient": "left", "scale": "y", "title": "entropy of the next token, nats", "grid": true, "domain": false,
     "ticks": false, "tickCount": 6, "labelPadding": 6, "titlePadding": 10},
    {"orient": "bottom", "scale": "x", "title": {"signal": "counted + counted_of"}, "ticks": false,
     "labelPadding": 6}
  ],
  "marks": [
    {"type": "rule", "from": {"data": "depths"}, "encode": {"update": {"x": {"scale": "x", "field": "depth",
      "band": 0.5}, "y": {"scale": "y", "field": "p5"}, "y2": {"scale": "y", "field": "p95"}}}},
    {"type": "rect", "from": {"data": "depths"}, "encode": {"update": {"xc": {"scale": "x", "field": "depth",
      "band": 0.5}, "width": {"signal": "min(70, bandwidth('x') * 0.6)"}, "y": {"scale": "y", "field": "p75"},
      "y2": {"scale": "y", "field": "p25"}, "fill": {"scale": "color", "value": "MoD"}, "cornerRadius": {"value": 3},
      "tooltip": {"signal": "datum.depth + ' ' + counted + ': ' + format(datum.share, '.1%') + ' of tokens, median entropy ' + format(datum.p50, '.3f')"}}}},
    {"type": "rule", "style": "card", "interactive": false, "from": {"data": "depths"}, "encode": {"update": {
      "x": {"scale": "x", "field": "depth", "band": 0.5, "offset": {"signal": "-min(35, bandwidth('x') * 0.3)"}},
      "x2": {"scale": "x", "field": "depth", "band": 0.5, "offset": {"signal": "min(35, bandwidth('x') * 0.3)"}},
      "y": {"scale": "y", "field": "p50"}, "strokeWidth": {"value": 2.5}}}},
    {"type": "text", "from": {"data": "depths"}, "encode": {"update": {"x": {"scale": "x", "field": "depth",
      "band": 0.5}, "y": {"scale": "y", "field": "p95", "offset": -6}, "align": {"value": "center"}, "text": {"signal":
      "(datum.share < 0.001 ? 'under 0.1%' : format(datum.share, '.1%')) + ' of tokens'"}}}}
  ]
})json";

const char* const kTokenMap = R"json({
  "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "tokens", "value": 1}, {"name": "blocks", "value": 1},
    {"name": "height", "update": "blocks * 22 + 40"}],
  "scales": [
    {"name": "x", "type": "band", "domain": {"signal": "sequence(tokens)"}, "range": "width", "paddingInner": 0.12},
    {"name": "y", "type": "band", "domain": {"data": "rows", "field": "block"}, "range": [16, {"signal": "height"}],
     "paddingInner": 0.18},
    {"name": "color", "type": "ordinal", "domain": ["dense", "MoD"], "range": "category"},
    {"name": "fill", "type": "ordinal", "domain": ["skipped", "went through"], "range": "ordinal"}
  ],
  "axes": [{"orient": "left", "scale": "y", "title": "block", "domain": false, "ticks": false, "labelPadding": 6, "titlePadding": 10}],
  "marks": [
    {"type": "text", "interactive": false, "from": {"data": "letters"}, "encode": {"update": {"x": {"scale": "x",
      "field": "token", "band": 0.5}, "y": {"value": 10}, "align": {"value": "center"}, "fontSize": {"signal":
      "min(12, bandwidth('x') * 1.5)"}, "font": {"value": "DejaVu Sans Mono, Menlo, Consolas, monospace"},
      "text": {"field": "text"}}}},
    {"type": "rect", "from": {"data": "cells"}, "encode": {"update": {"x": {"scale": "x", "field": "token"},
      "width": {"scale": "x", "band": 1}, "y": {"scale": "y", "field": "block"}, "height": {"scale": "y", "band": 1},
      "fill": [{"test": "datum.dense", "scale": "fill", "value": "skipped"}, {"scale": "fill",
      "value": "went through"}], "cornerRadius": {"value": 1}, "tooltip": {"signal":
      "'\u201C' + datum.text + '\u201D, token ' + datum.token + (datum.dense ? ': dense block ' : ' went through block ') + datum.block"}}}}
  ]
})json";

const char* const kExpertMap = R"json({
  "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "tokens", "value": 1}, {"name": "blocks", "value": 1}, {"name": "stripes", "value": 1},
    {"name": "digits", "value": 1}, {"name": "height", "update": "blocks * max(24, 14 * stripes) + 66"},
    {"name": "letter", "update": "min(11, bandwidth('x') * 1.5 / max(1.5, digits))"}],
  "scales": [
    {"name": "x", "type": "band", "domain": {"signal": "sequence(tokens)"}, "range": "width", "paddingInner": 0.1},
    {"name": "y", "type": "band", "domain": {"data": "rows", "field": "block"}, "range": [16, {"signal": "height"}],
     "paddingInner": 0.16},
    {"name": "expert", "type": "ordinal", "domain": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "range": {"scheme": "tableau10"}},
    {"name": "named", "type": "ordinal", "domain": {"data": "legend", "field": "experts"},
     "range": {"scheme": "tableau10"}},
    {"name": "fill", "type": "ordinal", "domain": ["skipped", "went through"], "range": "ordinal"}
  ],
  "legends": [{"fill": "named", "orient": "top", "direction": "horizontal", "title": "expert", "titleOrient": "left",
    "symbolType": "square", "columns": 10}],
  "axes": [{"orient": "left", "scale": "y", "title": "block", "domain": false, "ticks": false, "labelPadding": 6, "titlePadding": 10}],
  "marks": [
    {"type": "text", "interactive": false, "from": {"data": "letters"}, "encode": {"update": {"x": {"scale": "x",
      "field": "token", "band": 0.5}, "y": {"value": 10}, "align": {"value": "center"}, "fontSize": {"signal":
      "min(12, bandwidth('x') * 1.5)"}, "font": {"value": "DejaVu Sans Mono, Menlo, Consolas, monospace"},
      "text": {"field": "text"}}}},
    {"type": "rect", "from": {"data": "cells"}, "encode": {"update": {"x": {"scale": "x", "field": "token"},
      "width": {"scale": "x", "band": 1}, "y": {"scale": "y", "field": "block", "offset": {"signal":
      "datum.part / datum.of * bandwidth('y')"}}, "height": {"signal": "bandwidth('y') / datum.of"},
      "fill": [{"test": "datum.kind === 'expert'", "scale": "expert", "field": "colour"},
       {"test": "datum.kind === 'whole'", "scale": "fill", "value": "went through"}, {"scale": "fill", "value": "skipped"}],
      "cornerRadius": {"value": 1}, "tooltip": {"field": "tip"}}}},
    {"type": "text", "interactive": false, "from": {"data": "cells"}, "encode": {"update": {"x": {"scale": "x",
      "field": "token", "band": 0.5}, "y": {"scale": "y", "field": "block", "offset": {"signal":
      "(datum.part + 0.5) / datum.of * bandwidth('y')"}}, "align": {"value": "center"}, "baseline": {"value": "middle"},
      "fontSize": {"signal": "letter"}, "fill": {"signal":
      "luminance(scale('expert', datum.colour)) > 0.36 ? '#000000' : '#ffffff'"},
      "text": {"signal": "datum.kind === 'expert' && letter >= 5 ? datum.expert : ''"}}}}
  ]
})json";

const char* const kScan = R"json({
  "height": 390, "padding": 2, "autosize": {"type": "fit", "contains": "padding"},
  "signals": [{"name": "x_title", "value": ""}, {"name": "least_share", "value": 0}, {"name": "most_share", "value": 1},
    {"name": "low", "value": 0.9}, {"name": "high", "value": 1.1},
    {"name": "upper", "update": "height * 0.62"}, {"name": "lower", "update": "height * 0.7"}],
  "scales": [
    {"name": "x", "type": "point", "domain": {"data": "ratios", "field": "value"}, "range": "width", "padding": 0.25},
    {"name": "share", "type": "linear", "domain": [{"signal": "least_share"}, {"signal": "most_share"}],
     "range": [{"signal": "upper"}, 0], "zero": false, "nice": false},
    {"name": "ratio", "type": "linear", "domain": [{"signal": "low"}, {"signal": "high"}],
     "range": [{"signal": "height"}, {"signal": "lower"}], "zero": false, "nice": false},
    {"name": "color", "type": "ordinal", "domain": ["dense", "MoD"], "range": "category"}
  ],
  "legends": [{"stroke": "color", "symbolType": "stroke", "symbolStrokeWidth": 3, "orient": "top", "direction":
    "horizontal", "title": null}],
  "axes": [
    {"orient": "bottom", "scale": "x", "title": {"signal": "x_title"}, "ticks": false, "labelPadding": 6},
    {"orient": "left", "scale": "share", "title": "share of peak", "format": ".0%", "grid": true, "domain": false,
     "ticks": false, "tickCount": 6, "labelPadding": 6, "titlePadding": 10},
    {"orient": "left", "scale": "ratio", "title": "time / FLOPs", "format": ".2f", "grid": true, "domain": false,
     "ticks": false, "tickCount": 4, "labelPadding": 6, "titlePadding": 10}
  ],
  "marks": [
    {"type": "group", "from": {"facet": {"name": "line", "data": "shares", "groupby": "twin"}},
     "encode": {"update": {"width": {"signal": "width"}, "height": {"signal": "upper"}}},
     "marks": [
      {"type": "rule", "from": {"data": "line"}, "encode": {"update": {"x": {"scale": "x", "field": "value"},
       "y": {"scale": "share", "field": "low"}, "y2": {"scale": "share", "field": "high"},
       "stroke": {"scale": "color", "field": "twin"}, "strokeOpacity": {"value": 0.5}}}},
      {"type": "line", "interactive": false, "from": {"data": "line"}, "encode": {"update": {
       "x": {"scale": "x", "field": "value"}, "y": {"scale": "share", "field": "median"},
       "stroke": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 2.5}}}},
      {"type": "symbol", "style": "card", "from": {"data": "line"}, "encode": {"update": {
       "x": {"scale": "x", "field": "value"}, "y": {"scale": "share", "field": "median"}, "size": {"value": 60},
       "fill": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 1.5}, "tooltip": {"signal":
       "datum.twin + ' at ' + datum.value + (datum.detail ? ', ' + datum.detail : '') + ': ' + format(datum.median, '.1%') + ' of peak (' + format(datum.low, '.1%') + ' to ' + format(datum.high, '.1%') + ')'"}}}}]},
    {"type": "line", "style": "ink", "interactive": false, "from": {"data": "ratios"}, "encode": {"update": {
      "x": {"scale": "x", "field": "value"}, "y": {"scale": "ratio", "field": "limit"}, "strokeOpacity": {"value": 0.6},
      "strokeDash": {"value": [5, 4]}, "strokeWidth": {"value": 1}, "interpolate": {"value": "step"}}}},
    {"type": "rule", "from": {"data": "ratios"}, "encode": {"update": {"x": {"scale": "x", "field": "value"},
      "y": {"scale": "ratio", "field": "low"}, "y2": {"scale": "ratio", "field": "high"},
      "stroke": {"scale": "color", "field": "twin"}, "strokeOpacity": {"value": 0.5}}}},
    {"type": "line", "interactive": false, "from": {"data": "ratios"}, "encode": {"update": {
      "x": {"scale": "x", "field": "value"}, "y": {"scale": "ratio", "field": "median"},
      "stroke": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 2.5}}}},
    {"type": "symbol", "style": "card", "from": {"data": "ratios"}, "encode": {"update": {
      "x": {"scale": "x", "field": "value"}, "y": {"scale": "ratio", "field": "median"}, "size": {"value": 60},
      "fill": {"scale": "color", "field": "twin"}, "strokeWidth": {"value": 1.5}, "tooltip": {"signal":
      "datum.value + (datum.detail ? ', ' + datum.detail : '') + ': MoD takes ' + format(datum.median, '.3f') + ' times what its FLOPs say (' + format(datum.low, '.3f') + ' to ' + format(datum.high, '.3f') + '; goal: ' + format(datum.limit, '.2f') + ')'"}}}}
  ]
})json";

}  // namespace isobath
