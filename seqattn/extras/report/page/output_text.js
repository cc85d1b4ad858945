/** Output text, with marks on copied parts, and on differences from another bundle's output. */

import { element, rounded } from "./dom.js";
import { labels, shared } from "./pieces.js";

/** Draw the pieces of an output; `other` is another bundle's look, or null. */
export function outputText(look, other) {
  const pieces = look.target.slice(0, -1);
  const same = other ? shared(pieces, other.target.slice(0, -1)) : pieces.map(() => true);
  const { pieces: copied, pointer } = look.copied;
  const words = labels(pieces).map((piece) => piece.replace(/^‿|^␣$/, ""));
  const spans = pieces.map((piece, place) => {
    const classes = [copied[place] ? "copied" : "", same[place] ? "" : "differs"].join(" ").trim();
    const chance = pointer ? `copied with probability ${rounded(pointer[place], 2)}` : null;
    const tint = pointer ? `--copy:${Math.round(100 * pointer[place])}%` : null;
    const space = piece.startsWith("▁") && place ? " " : "";
    return [space, element("span", { class: classes || null, title: chance, style: tint }, words[place])];
  });
  return element("p", { class: pointer ? "output pointer" : "output" }, spans.length ? spans : "(empty)");
}

/** Explain the marks of an output; null without marks. */
export function outputLegend(look, other) {
  const { coverage, density, pointer } = look.copied;
  const parts = [];
  if (coverage) parts.push([element("span", { class: "copied" }, "in the source"), `: ${Math.round(100 * coverage)} % of words, density ${rounded(density, 2)}`]);
  if (pointer) parts.push([element("span", { class: "pointer-key" }, "tinted"), ": probability of copying"]);
  const pieces = look.target.slice(0, -1);
  if (other && shared(pieces, other.target.slice(0, -1)).includes(false)) parts.push([element("span", { class: "differs" }, "not in the other output")]);
  if (!parts.length) return null;
  return element("p", { class: "legend" }, parts.map((part, place) => [place ? "; " : "", part]));
}
