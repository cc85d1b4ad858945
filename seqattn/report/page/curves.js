/** Learning curves: a chart for each measurement, a line for each bundle and split. */

import { MARKS } from "./colours.js";
import { drawn, element, rounded } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, BOTTOM, TOP] = [340, 190, 52, 24, 10];

/** Draws the curves of all bundles. */
export function curveCharts(bundles) {
  const charts = new Map();
  bundles.forEach((bundle, number) => {
    for (const curve of bundle.curves) {
      const [split, ...rest] = curve.name.split("/");
      const name = rest.join("/") || split;
      if (!charts.has(name)) charts.set(name, []);
      const line = { ...curve, split, colour: MARKS[number % MARKS.length], title: `${bundle.name}, ${split}` };
      charts.get(name).push(line);
    }
  });
  if (!charts.size) return element("p", { class: "note" }, "the run's measurements are not beside the bundle");
  const measured = ([, lines]) => (lines.some((line) => line.split === "val") ? 0 : 1);
  const sorted = [...charts].sort((a, b) => measured(a) - measured(b));
  return element("div", { class: "charts" }, sorted.map(([name, lines]) => chart(name, lines)));
}

function chart(name, lines) {
  const steps = lines.flatMap((line) => line.steps);
  const values = lines.flatMap((line) => line.values);
  const x = scale(0, Math.max(...steps) || 1, LEFT, WIDTH - 12);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const y = scale(low, high > low ? high : low + 1, HEIGHT - BOTTOM, TOP);
  const ticks = [low, (low + high) / 2, high].map((value) =>
    [drawn("line", { class: "rule", x1: LEFT, x2: WIDTH - 12, y1: y(value), y2: y(value) }), drawn("text", { x: LEFT - 5, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toPrecision(3))))]);
  const ends = [0, Math.max(...steps)].map((step, place) =>
    drawn("text", { x: x(step), y: HEIGHT - 6, "text-anchor": place ? "end" : "start" }, `${step.toLocaleString("en")}${place ? " steps" : ""}`));
  const paths = lines.map((line) => drawn("path", {
    class: `curve ${line.split}`,
    stroke: line.colour,
    d: line.steps.map((step, place) => `${place ? "L" : "M"}${x(step).toFixed(1)} ${y(line.values[place]).toFixed(1)}`).join(""),
  }, drawn("title", {}, line.title)));
  const said = `${name}: ${lines.map((line) => `${line.title} from ${rounded(line.values[0])} to ${rounded(line.values.at(-1))}`).join("; ")}`;
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": said }, ticks, ends, paths);
  const key = lines.map((line) => element("span", { class: `curve-key ${line.split}`, style: `--colour:${line.colour}` }, line.title));
  return element("figure", {}, element("figcaption", {}, name), svg, element("p", { class: "legend" }, key));
}

function scale(from, to, first, last) {
  return (value) => first + ((value - from) / (to - from)) * (last - first);
}
