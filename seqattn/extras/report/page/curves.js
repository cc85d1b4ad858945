/** Learning curves: a chart for each measurement, a line for each bundle and split, or layer. */

import { drawn, element, rounded } from "./dom.js";
import { MEASUREMENTS } from "./terms.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [340, 190, 52, 24, 10];
const SPLITS = ["val", "final", "train", "attention"]; // in this order
const COLORS = 6; // as in the style
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Draw the curves of all bundles. */
export function curveCharts(bundles) {
  const charts = new Map();
  bundles.forEach((bundle, number) => {
    for (const curve of bundle.curves) {
      const { split, layer, name } = placeOf(curve.name);
      if (!charts.has(name)) charts.set(name, []);
      const title = `${bundle.name}, ${layer === null ? split : `layer ${layer + 1}`}`;
      charts.get(name).push({ ...curve, split, layer, title, color: `var(--mark-${number % COLORS})` });
    }
  });
  if (!charts.size) return element("p", { class: "note" }, "no training measurements next to the bundle");
  const rank = ([, lines]) => Math.min(...lines.map((line) => SPLITS.indexOf(line.split.split(" ")[0])));
  const sorted = [...charts].sort((a, b) => rank(a) - rank(b));
  const isZero = ([, lines]) => lines.every((line) => line.values.every((value) => value === 0));
  const zeros = sorted.filter(isZero).map(([name]) => name);
  const last = Math.max(...bundles.flatMap((bundle) => bundle.curves.flatMap((curve) => curve.steps)));
  const isFinal = sorted.some(([, lines]) => lines.some((line) => line.split.startsWith("final")));
  return element("div", {},
    isFinal ? element("p", { class: "note" }, "a circle is the final score of the saved model") : null,
    element("div", { class: "charts" }, sorted.filter((one) => !isZero(one)).map(([name, lines]) => chart(name, lines, last))),
    zeros.length ? element("p", { class: "note" }, `always 0, not drawn: ${zeros.join(", ")}`) : null);
}

/** Return the chart of a measurement; for attention, all layers of a slot share one. */
function placeOf(measurement) {
  const [split, ...rest] = measurement.split("/");
  const name = rest.join("/") || split;
  if (split === "final" && rest.length > 1) return { split: `final ${rest[0]}`, layer: null, name: rest.slice(1).join("/") };
  const layered = split === "attention" && name.match(/^(.*)layers\.(\d+)\.(.*)$/);
  return layered ? { split, layer: Number(layered[2]), name: layered[1] + layered[3] } : { split, layer: null, name };
}

/** Draw a chart up to a step, the same for all charts. */
function chart(name, lines, last) {
  const values = lines.flatMap((line) => line.values);
  const x = scale(0, last || 1, LEFT, WIDTH - 12);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const y = scale(low, high > low ? high : low + 1, HEIGHT - BOTTOM, TOP);
  const ticks = [low, (low + high) / 2, high].map((value) =>
    [drawn("line", { class: "rule", x1: LEFT, x2: WIDTH - 12, y1: y(value), y2: y(value) }), drawn("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, tick(value))]);
  const ends = [0, last].map((step, place) =>
    drawn("text", { x: x(step), y: HEIGHT - 6, "text-anchor": place ? "end" : "start" }, `${step.toLocaleString("en")}${place ? " steps" : ""}`));
  const style = (line) => `--color:${line.color};--share:${share(line, lines)}%`;
  const paths = lines.map((line) => line.steps.length === 1 ? dot(line) : drawn("path", {
    class: `curve ${line.split}`,
    style: style(line),
    d: line.steps.map((step, place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(line.values[place]).toFixed(1)}`).join(""),
  }, drawn("title", {}, line.title)));
  function dot(line) {
    return drawn("circle", { class: "point", style: style(line), cx: x(line.steps[0]), cy: y(line.values[0]), r: 4 }, drawn("title", {}, `${line.title}: ${rounded(line.values[0])}`));
  }

  const said = `${name}: ${lines.map((line) => `${line.title} from ${rounded(line.values[0])} to ${rounded(line.values.at(-1))}`).join("; ")}`;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said }, ticks, ends, paths);
  const about = MEASUREMENTS[name.split("/").at(-1)] ?? null;
  const key = lines.map((line) => element("span", { class: `curve-key ${line.steps.length === 1 ? "point" : line.split}`, style: style(line) }, line.title));
  return element("figure", {}, element("figcaption", {}, name), about && element("p", { class: "note" }, about), svg, element("p", { class: "legend" }, key));
}

function tick(value) {
  return value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : COMPACT.format(value);
}

/** Return the percentage of color in a layer's line, more for deeper layers; the rest is ink. */
function share(line, lines) {
  const deepest = Math.max(...lines.map((one) => one.layer));
  return deepest > 0 ? Math.round(15 + (85 * line.layer) / deepest) : 100;
}

function scale(from, to, first, last) {
  return (value) => first + ((value - from) / (to - from)) * (last - first);
}
