#include "lab/page_parts.h"

namespace isobath {

const char* const kPageStyle = R"css(
:root {
  --page: #f6f8fa; --card: #ffffff; --ink: #17212b; --soft: #5a6b7b; --line: #dde4ea;
  --dense: #8a6d3b; --mod: #0b6fb8; --deep: 11, 88, 160; --on-deep: #ffffff; --good: #1a7f4b; --bad: #b3261e;
  --sans: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif;
  --mono: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0f151b; --card: #17202a; --ink: #e4ebf1; --soft: #94a5b5; --line: #2b3845;
    --dense: #d9b26a; --mod: #5ab0f2; --deep: 64, 156, 236; --on-deep: #06121f; --good: #5fd39a; --bad: #ff8a80;
  }
}
/* Figures that are saved are for white paper, whatever the screen is. */
:root.paper {
  --card: #ffffff; --ink: #17212b; --soft: #45535f; --line: #dde4ea; --dense: #8a6d3b; --mod: #0b6fb8;
  --deep: 11, 88, 160;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 var(--sans); }
header, main { max-width: 72rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
header p { margin: 0 0 1.6rem; color: var(--soft); max-width: 48rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.2rem 1.4rem 1.3rem;
  margin: 0 0 1.2rem; }
h2 { font-size: 1.15rem; margin: 0 0 .3rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .3rem; }
.note { margin: 0 0 .9rem; color: var(--soft); font-size: .92rem; max-width: 52rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .3rem .9rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child { text-align: left; font-weight: 500; padding-right: 2rem; }
thead th { color: var(--soft); font-weight: 600; }
tbody tr:last-child th, tbody tr:last-child td { border-bottom: 0; }
.chart { width: 100%; margin: .2rem 0 .3rem; }
.chart svg { display: block; }
.save { float: right; font-size: .82rem; }
.save button { font: inherit; color: var(--soft); background: none; border: 0; padding: 0 .35rem; cursor: pointer; }
.save button:hover { color: var(--ink); text-decoration: underline; }
.numbers { font-size: .88rem; color: var(--soft); }
.numbers summary { cursor: pointer; }
.missing { border-left: 3px solid var(--bad); padding: .4rem .8rem; margin: .4rem 0; }
.verdicts { list-style: none; margin: .9rem 0 0; padding: 0; font-size: .93rem; }
.verdicts li { margin: .15rem 0; }
.verdicts b { display: inline-block; width: 3.2rem; font-size: .8rem; letter-spacing: .04em; }
.pass b { color: var(--good); } .fail b { color: var(--bad); }
.winner { font-weight: 600; margin: .9rem 0 0; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; font-size: .88rem; color: var(--soft); margin: 0 0 .6rem; }
.legend i { display: inline-block; min-width: 1.5rem; padding: 0 .35rem; text-align: center; font-style: normal;
  border-radius: 3px; margin-right: .35rem; border: 1px solid var(--line); }
.passage { font: .93rem/1.75 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; max-height: 32rem;
  overflow-y: auto; }
.passage i { font-style: normal; position: relative; padding: .14em 0; }
.passage i:hover { outline: 1.5px solid var(--ink); z-index: 1; }
.passage i:hover::after { content: attr(data-t); position: absolute; left: 0; top: 1.9em; z-index: 2; white-space: pre;
  font: .8rem/1.4 var(--sans); color: var(--page); background: var(--ink); padding: .25rem .5rem; border-radius: 4px;
  pointer-events: none; }
.samples { display: grid; grid-template-columns: 1fr 1fr; gap: .6rem 1.6rem; }
.samples pre { font: .86rem/1.5 var(--mono); white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.samples pre b { color: var(--soft); }
.samples h3 { margin: 0; }
@media (max-width: 44rem) { .samples { grid-template-columns: 1fr; } section { padding: 1rem; } }
#vg-tooltip { position: fixed; z-index: 9; font: .8rem/1.45 var(--sans); color: var(--page); background: var(--ink);
  padding: .3rem .55rem; border-radius: 4px; pointer-events: none; white-space: pre; display: none; }
)css";

const char* const kPageScript = R"js(
"use strict";
(function () {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const holders = specs.map((_, i) => document.getElementById("chart-" + i));
  if (!window.vega) {
    for (const holder of holders) {
      holder.className = "missing";
      holder.textContent = "The chart needs Vega: install the Debian package libjs-vega and write this page again. " +
        "Its numbers are below.";
      holder.nextElementSibling.open = true;
    }
    return;
  }
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "vg-tooltip";
  function tooltip(handler, event, item, value) {
    if (value == null || value === "") { tip.style.display = "none"; return; }
    tip.textContent = String(value);
    tip.style.display = "block";
    const right = Math.max(0, window.innerWidth - tip.offsetWidth - 8);
    tip.style.left = Math.min(event.clientX + 14, right) + "px";
    tip.style.top = (event.clientY + 16) + "px";
  }
  function theme() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    const font = getComputedStyle(document.body).fontFamily;
    const deep = get("--deep");
    return {
      background: "transparent",
      range: { category: [get("--dense"), get("--mod")],
               ordinal: [get("--line"), "rgb(" + deep + ")"] },
      axis: { domainColor: get("--line"), tickColor: get("--line"), gridColor: get("--line"), labelColor: get("--soft"),
              titleColor: get("--soft"), labelFont: font, titleFont: font, labelFontSize: 12, titleFontSize: 12,
              titleFontWeight: "normal" },
      legend: { labelColor: get("--ink"), titleColor: get("--soft"), labelFont: font, titleFont: font,
                labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal" },
      title: { color: get("--soft"), font: font, fontSize: 12, fontWeight: "normal", anchor: "start" },
      text: { fill: get("--soft"), font: font, fontSize: 12 },
      rule: { stroke: get("--soft") },
      style: { ink: { stroke: get("--ink") }, card: { stroke: get("--card") } },
    };
  }
  // The rows behind a chart, all sets in one table.
  function csv(spec) {
    const sets = spec.data.filter((set) => Array.isArray(set.values) && set.values.length > 0);
    const keys = [...new Set(sets.flatMap((set) => set.values.flatMap((row) => Object.keys(row))))];
    const columns = keys.filter((key) => key !== "tip");
    const cell = (v) => /[",\n]/.test(v = v == null ? "" : String(v)) ? '"' + v.replace(/"/g, '""') + '"' : v;
    const lines = [["set", ...columns]];
    for (const set of sets) for (const row of set.values) lines.push([set.name, ...columns.map((key) => row[key])]);
    return lines.map((line) => line.map(cell).join(",")).join("\n") + "\n";
  }
  function paper(spec) {
    const root = document.documentElement;
    root.classList.add("paper");
    const config = Object.assign(theme(), { background: "white" });
    root.classList.remove("paper");
    return new vega.View(vega.parse(Object.assign({}, spec, { width: 640 }), config), { renderer: "none" });
  }
  function save(name, url) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
  }
  const blob = (text, type) => URL.createObjectURL(new Blob([text], { type: type }));
  const kinds = {
    SVG: (spec, name) => paper(spec).toSVG().then((svg) => save(name + ".svg", blob(svg, "image/svg+xml"))),
    PNG: (spec, name) => paper(spec).toImageURL("png", 3).then((url) => save(name + ".png", url)),
    CSV: (spec, name) => save(name + ".csv", blob(csv(spec), "text/csv")),
  };
  specs.forEach((spec, i) => {
    const bar = document.createElement("div");
    bar.className = "save";
    for (const kind of Object.keys(kinds)) {
      const button = bar.appendChild(document.createElement("button"));
      button.textContent = kind;
      button.addEventListener("click", () => kinds[kind](spec, name_of(i)));
    }
    holders[i].after(bar);
  });
  const name_of = (i) => holders[i].dataset.name || "figure-" + (i + 1);
  // page.html#svg says all figures as {name: SVG} in base64, for tools/figures_to_svg.
  if (location.hash === "#svg") {
    Promise.all(specs.map((spec) => paper(spec).toSVG())).then((figures) => {
      const named = Object.fromEntries(figures.map((svg, i) => [name_of(i), svg]));
      const bytes = Array.from(new TextEncoder().encode(JSON.stringify(named)), (byte) => String.fromCodePoint(byte));
      document.body.textContent = btoa(bytes.join(""));
    });
    return;
  }
  let views = [];
  function draw() {
    for (const view of views) view.finalize();
    const config = theme();
    views = specs.map((spec, i) => {
      const sized = Object.assign({}, spec, { width: holders[i].clientWidth });
      const view = new vega.View(vega.parse(sized, config), { renderer: "svg", container: holders[i], hover: true,
        logLevel: vega.Warn });
      view.tooltip(tooltip);
      view.runAsync();
      return view;
    });
  }
  draw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let waiting = 0, width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  });
})();
)js";

// A module is CommonJS here. What Vega's own index does: transforms of all modules are known by name to the dataflow.
const char* const kVegaLoader = R"js(
/* Vega, Copyright (c) 2015-2022 University of Washington Interactive Data Lab, BSD-3-Clause: github.com/vega/vega.
   D3 parts in it: Copyright Mike Bostock, ISC. */
(function () {{
const loaded = {{ "vega-selections": null }};
function require(name) {{ return loaded[name]; }}
function define(name, body) {{
  const module = {{ exports: {{}} }};
  body(module.exports, module, require);
  loaded[name] = module.exports;
  if (name === "vega-selection") loaded["vega-selections"] = module.exports;
}}
{modules}
const flow = loaded["vega-dataflow"];
for (const name of ["vega-transforms", "vega-view-transforms", "vega-encode"])
  Object.assign(flow.transforms, loaded[name]);
window.vega = {{ View: loaded["vega-view"].View, parse: loaded["vega-parser"].parse, Warn: loaded["vega-util"].Warn }};
}})();
)js";

}  // namespace isobath
