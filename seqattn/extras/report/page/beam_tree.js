/** Beam search as a tree: steps from left to right, the likeliest on top. */

import { drawn, element, rounded, scroller } from "./dom.js";
import { label } from "./pieces.js";

const [WIDTH, HEIGHT] = [86, 20];

/** Draw the candidates of a search as a list of nodes; pruned ones only if `pruned` is true. */
export function beamTree(nodes, pruned = false) {
  if (!nodes.length) return [element("p", { class: "note" }, "this search has no tree; use generation=beam")];
  const places = new Map();
  const taken = [];
  nodes.forEach((node, number) => {
    if (node.fate === "pruned" && !pruned) return;
    const rank = taken[node.step] ?? 0;
    taken[node.step] = rank + 1;
    places.set(number, [node.step * WIDTH, (rank + 1) * HEIGHT]);
  });
  const root = [20, HEIGHT];
  const shown = [...places];
  const edges = shown.map(([number, place]) => edge(places.get(nodes[number].parent) ?? root, place, nodes[number]));
  const marks = shown.map(([number, place]) => mark(nodes[number], place));
  const width = WIDTH * taken.length + 20;
  const height = HEIGHT * (Math.max(...taken.filter(Boolean)) + 1);
  const said = `beam search: ${taken.length - 1} steps, ${nodes.length} candidates`;
  const svg = drawn("svg", { class: "beam", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said }, edges, drawn("circle", { cx: root[0], cy: root[1], r: 4 }), marks);
  return scroller({ tabindex: 0, "aria-label": said, role: "group" }, svg);
}

function edge([fromX, fromY], [toX, toY], node) {
  const middle = (fromX + 40 + toX) / 2;
  return drawn("path", { class: classes("edge", node), d: `M${fromX + 4} ${fromY} C${middle} ${fromY} ${middle - 20} ${toY} ${toX - 6} ${toY}` });
}

function mark(node, [x, y]) {
  const piece = label(node.token, 1);
  const text = piece.length > 8 ? `${piece.slice(0, 7)}…` : piece;
  return drawn("g", { class: classes("node", node) },
    drawn("title", {}, `${piece}, log-probability ${rounded(node.score)}, ${node.fate}`),
    drawn("circle", { cx: x, cy: y, r: node.fate === "finished" ? 5 : 3 }),
    drawn("text", { x: x + 8, y: y + 4 }, text));
}

function classes(name, node) {
  return `${name} ${node.fate}${node.best ? " best" : ""}`;
}
