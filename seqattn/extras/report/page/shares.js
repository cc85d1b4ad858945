/** Share of each output token that came from the source, and from the prefix. */

import { decoded, matrix } from "./arrays.js";
import { element, rounded } from "./dom.js";
import { labels } from "./pieces.js";
import { METHODS } from "./terms.js";

const PARTS = { source: "the source", prefix: "the output so far", rest: "the rest (biases, or what the method cannot attribute)" };

/** Say what source use is. */
export function aboutUse(method) {
  return `Source use is the source's mean share over the output, leaving out the rest; a low one is a sign of hallucination. Measured by ${method} (${METHODS[method]}).`;
}

/** Draw a bar for each token, by one method. */
export function sharesOf(look, explanation) {
  if (!explanation) return element("p", { class: "note" }, "no method that measures shares supports all of these models");
  if (!explanation.source) return element("p", { class: "note" }, `${explanation.method}: ${explanation.reason}`);
  const parts = shares(explanation);
  const rows = labels(look.target).map((piece, place) => {
    const values = { source: parts.source[place], prefix: parts.prefix[place], rest: parts.rest[place] };
    const told = Object.entries(values).map(([name, value]) => `${name} ${Math.round(100 * value)} %`).join(", ");
    const bar = Object.entries(values).map(([name, value]) =>
      element("span", { class: `share ${name}`, style: `width:${100 * value}%`, "data-share": rounded(value, 6) }));
    return element("div", { class: "share-row", title: told }, element("span", { class: "piece" }, piece), element("span", { class: "bar", role: "img", "aria-label": `${piece}: ${told}` }, bar));
  });
  const key = Object.entries(PARTS).map(([name, about]) => element("span", { class: `key ${name}` }, about));
  return element("div", { class: "shares" }, element("p", { class: "legend" }, "each token comes from: ", key), rows, element("p", { class: "note about-use" }, aboutUse(explanation.method)));
}

/** Return shares of source, prefix and rest for each row, from absolute values, so that they add up to 1. */
export function shares({ source, prefix, rest }) {
  const sums = [source, prefix].map((part) => rowSums(matrix(part)));
  const left = Array.from(decoded(rest), Math.abs);
  const total = left.map((value, row) => value + sums[0][row] + sums[1][row] || 1);
  const share = (values) => values.map((value, row) => value / total[row]);
  return { source: share(sums[0]), prefix: share(sums[1]), rest: share(left) };
}

function rowSums({ rows, columns, values }) {
  return Array.from({ length: rows }, (_, row) =>
    values.subarray(row * columns, (row + 1) * columns).reduce((total, value) => total + Math.abs(value), 0));
}
