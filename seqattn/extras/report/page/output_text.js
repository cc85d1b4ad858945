/** Output text, with marks on copied and doubtful parts, and on differences from another output. */

import { element, explained, rounded } from "./dom.js";
import { labels, shared } from "./pieces.js";

/** Draw the pieces of an output; `other` is another bundle's look, or null. */
export function outputText(look, other) {
  const pieces = look.target.slice(0, -1);
  const same = other ? shared(pieces, other.target.slice(0, -1)) : pieces.map(() => true);
  const { pieces: copied, pointer } = look.copied;
  const words = labels(pieces).map((piece) => piece.replace(/^‿|^␣$/, ""));
  const spans = pieces.map((piece, place) => {
    const doubtful = marks(look.quality?.unsupported, place);
    const classes = [copied[place] ? "copied" : "", same[place] ? "" : "differs", doubtful ? "doubtful" : ""].join(" ").trim();
    const chance = pointer ? `copied with probability ${rounded(pointer[place], 2)}` : null;
    const tint = pointer ? `--copy:${Math.round(100 * pointer[place])}%` : null;
    const space = piece.startsWith("▁") && place ? " " : "";
    return [space, element("span", { class: classes || null, title: chance, style: tint }, words[place]), aloud(doubtful, "not supported by the source")];
  });
  return element("p", { class: pointer ? "output pointer" : "output" }, spans.length ? spans : "(empty)");
}

/** Return 1 inside, 2 at the end of a marked run of pieces, else 0. */
function marks(places, place) {
  if (!places?.includes(place)) return 0;
  return places.includes(place + 1) ? 1 : 2;
}

/** Say what a mark means to readers who do not see it. */
function aloud(mark, about) {
  return mark === 2 ? element("span", { class: "aloud" }, ` (${about}) `) : "";
}

/** Draw how far to trust an output, and the source with the words that it leaves out; null without. */
export function qualityOf({ quality, source }) {
  if (!quality) return null;
  const told = Object.entries(quality.signals).map(([name, value]) => `${name} ${rounded(value)}`).join(", ");
  const shown = labels(source).map((piece) => piece.replace(/^‿|^␣$/, ""));
  const words = shown.slice(0, -1).map((piece, place) => {
    const mark = marks(quality.left_out, place);
    return [source[place].startsWith("▁") && place ? " " : "", element("span", { class: mark ? "left-out" : null }, piece), aloud(mark, "left out")];
  });
  const legend = [element("span", { class: "doubtful" }, "output words"), " that the source does not support; ", element("span", { class: "left-out" }, "source words"), " that the output leaves out"];
  return element("div", { class: "quality" }, element("p", {}, explained(`expected ${quality.score} ${rounded(quality.expected, 1)}: ${quality.label}`, told)),
    element("p", { class: "source" }, words), element("p", { class: "legend" }, "to check: ", legend));
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
