/** Learning curves: a chart for each measurement, a line for each bundle and split, or layer. */

import { MARKS } from "./colors.js";
import { drawn, element, rounded } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [340, 190, 52, 24, 10];
const SPLITS = ["val", "train", "attention"]; // in this order
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Draw the curves of all bundles. */
export function curveCharts(bundles) {
  const charts = new Map();
  bundles.forEach((bundle, number) => {
    for (const curve of bundle.curves) {
      const { split, layer, name } = placeOf(curve.name);
      if (!charts.has(name)) charts.set(name, []);
      const title = `${bundle.name}, ${layer === null ? split : `layer ${layer + 1}`}`;
      charts.get(name).push({ ...curve, split, layer, title, color: MARKS[number % MARKS.length] });
    }
  });
  if (!charts.size) return element("p", { class: "note" }, "no training measurements next to the bundle");
  const rank = ([, lines]) => Math.min(...lines.map((line) => SPLITS.indexOf(line.split)));
  const sorted = [...charts].sort((a, b) => rank(a) - rank(b));
  return element("div", { class: "charts" }, sorted.map(([name, lines]) => chart(name, lines)));
}

/** Return the chart of a measurement; for attention, all layers of a slot share one. */
function placeOf(measurement) {
  const [split, ...rest] = measurement.split("/");
  const name = rest.join("/") || split;
  const layered = split === "attention" && name.match(/^(.*)layers\.(\d+)\.(.*)$/);
  return layered ? { split, layer: Number(layered[2]), name: layered[1] + layered[3] } : { split, layer: null, name };
}

function chart(name, lines) {
  const steps = lines.flatMap((line) => line.steps);
  const values = lines.flatMap((line) => line.values);
  const x = scale(0, Math.max(...steps) || 1, LEFT, WIDTH - 12);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const y = scale(low, high > low ? high : low + 1, HEIGHT - BOTTOM, TOP);
  const ticks = [low, (low + high) / 2, high].map((value) =>
    [drawn("line", { class: "rule", x1: LEFT, x2: WIDTH - 12, y1: y(value), y2: y(value) }), drawn("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, tick(value))]);
  const ends = [0, Math.max(...steps)].map((step, place) =>
    drawn("text", { x: x(step), y: HEIGHT - 6, "text-anchor": place ? "end" : "start" }, `${step.toLocaleString("en")}${place ? " steps" : ""}`));
  const paths = lines.map((line) => drawn("path", {
    class: `curve ${line.split}`,
    stroke: line.color,
    opacity: opacity(line, lines),
    d: line.steps.map((step, place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(line.values[place]).toFixed(1)}`).join(""),
  }, drawn("title", {}, line.title)));
  const said = `${name}: ${lines.map((line) => `${line.title} from ${rounded(line.values[0])} to ${rounded(line.values.at(-1))}`).join("; ")}`;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said }, ticks, ends, paths);
  const key = lines.map((line) => element("span", { class: `curve-key ${line.split}`, style: `--color:${line.color};--opacity:${opacity(line, lines)}` }, line.title));
  return element("figure", {}, element("figcaption", {}, name), svg, element("p", { class: "legend" }, key));
}

function tick(value) {
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : COMPACT.format(value);
}

/** Return the opacity of a layer's line, stronger for deeper layers. */
function opacity(line, lines) {
  if (line.layer === null) return 1;
  const depth = (line.layer + 1) / (1 + Math.max(...lines.map((one) => one.layer)));
  return (0.3 + 0.7 * depth).toFixed(2);
}

function scale(from, to, first, last) {
  return (value) => first + ((value - from) / (to - from)) * (last - first);
}
