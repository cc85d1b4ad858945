/** One bundle's view of a sentence. */

import { answerList, answerText } from "./answer_text.js";
import { beamTree } from "./beam_tree.js";
import { element, explained, keepingFocus, rounded } from "./dom.js";
import { gridMap } from "./grid_map.js";
import { lensOf } from "./lens.js";
import { linksOf } from "./links.js";
import { outputLegend, outputText, qualityOf } from "./output_text.js";
import { wordNumbers } from "./pieces.js";
import { selection } from "./selection.js";
import { rolesOf, smallMaps } from "./small_maps.js";
import { aboutUse, sharesOf } from "./shares.js";
import { tableOf } from "./tables.js";
import { viewOf } from "./views.js";

/**
 * Create a panel. `pointed(side, word)` is called with the word under the pointer, so that other
 * panels can point at the same one: see `pointAt`. `tools`, if given, change the model:
 * `isOff(attention, head)`, `buttons()`, and `weight(view, row, column)`, the nodes for a cell.
 */
export class Panel {
  constructor({ run, bundle, look, sentence, other, pointed, tools }) {
    Object.assign(this, { run, bundle, look, sentence, other, pointed, tools });
    this.columns = [element("div", {}), element("div", {})]; // redrawn when the selection changes
    this.links = null;
    const [left, right] = this.columns;
    const [first, second, third, below] = this.lasting();
    const body = this.isText ? [columns([left, first], [right, second, third]), below] : [columns(first, second), columns(left, right)];
    this.node = element("article", { class: "panel", "aria-label": bundle.name }, this.head(), body);
    this.draw();
  }

  get isText() {
    return "source" in this.look;
  }

  head() {
    const { look, run, bundle } = this;
    const figures = [];
    if (look.score !== null) figures.push(`${run.score} ${rounded(look.score, 1)}`);
    if (look.source_use !== null) figures.push(explained(`source use ${rounded(look.source_use, 2)}`, aboutUse(run.source_use)));
    const said = this.isText ? [outputText(look, this.other), outputLegend(look, this.other), qualityOf(look)] : [element("p", { class: "output" }, look.output || "(no answer)")];
    return element("header", {}, element("h3", {}, bundle.name), element("p", { class: "figures" }, figures.map((one, place) => [place ? " · " : "", one])), said, look.notes.map((note) => element("p", { class: "note" }, note)));
  }

  /** Draw the parts that depend on the selection. */
  draw() {
    const view = viewOf(this.look, selection);
    this.links = null;
    this.view = view;
    if (view.reason) {
      this.fill([part("links and map", element("p", { class: "note reason" }, view.reason))], [this.maps()]);
      return;
    }
    const told = element("output", { class: "readout", "aria-live": "polite" }, "point at a word or use arrow keys");
    const point = (side, place) => {
      const words = side && this.wordsOf(side, view);
      this.links.point(side, side ? [place] : []);
      this.pointed(this, side && this.sideName(side, view), words ? words[place] : null);
      if (side === "said") told.textContent = this.links.describe(place);
    };
    this.links = linksOf(view, point);
    const chosen = element("div", {});
    const pick = this.tools && ((row, column) => chosen.replaceChildren(this.tools.weight(view, row, column)));
    const map = gridMap(view, (row) => this.links.point(row === null ? null : "said", row === null ? [] : [row]), pick);
    this.fill([part("links", this.links.node, told)], [part("map", element("p", { class: "note" }, view.title), map, this.tools ? chosen : []), this.maps()]);
  }

  fill(...sides) {
    keepingFocus(this.node, () => sides.forEach((parts, side) => this.columns[side].replaceChildren(...parts)));
  }

  /** Show the links of a word of a side ("read" or "said"); null for all words. */
  pointAt(side, word) {
    if (!this.links) return;
    const words = side ? this.wordsOf(side, this.view) : [];
    this.links.point(side, words.flatMap((one, place) => (one === word ? [place] : [])));
  }

  /** Show the links of a word under the pointer in another panel, if this one has it, too. */
  pointAtNamed(name, word) {
    if (!this.links) return;
    const side = ["read", "said"].find((one) => this.sideName(one, this.view) === name);
    const apart = name === "target" && this.look.output !== this.other?.output;
    this.pointAt(apart ? null : (side ?? null), word);
  }

  sideName(side, view) {
    if (view.slot === "encoder") return "source";
    if (view.slot === "question") return side === "said" ? "context" : "question";
    if (view.slot === "decoder") return side === "said" ? "target" : "before";
    return side === "said" ? "target" : "source";
  }

  wordsOf(side, view) {
    const { look } = this;
    const pieces = { source: look.source, target: look.target, question: look.question, context: look.context };
    const name = this.sideName(side, view);
    return wordNumbers(name === "before" ? ["<s>", ...look.target.slice(0, -1)] : pieces[name]);
  }

  maps() {
    return part("layers and heads", smallMaps(this.look, rolesOf(this.bundle), this.tools?.isOff), this.tools?.buttons() ?? []);
  }

  /** Draw the parts that do not depend on the selection: left, right and below. */
  lasting() {
    const { look } = this;
    if (!this.isText) return [part("context", answerText(look, this.sentence.context)), part("answers", answerList(look))];
    const explanation = look.explanations.find((one) => one.method === this.run.source_use);
    const hypotheses = look.hypotheses.map((one) => [one.text, one.score, one.log_probability]);
    const tree = element("div", {}, beamTree(look.beam));
    const all = element("label", { class: "legend" }, element("input", { type: "checkbox", change: (event) => tree.replaceChildren(...beamTree(look.beam, event.target.checked)) }), " show pruned candidates");
    const marks = element("p", { class: "legend" }, element("span", { class: "key prefix" }, "the output"), element("span", { class: "key finished" }, "finished"));
    return [
      part("shares of source and output so far", sharesOf(look, explanation)),
      part("lens", lensOf(look)),
      part("n-best", tableOf({ title: "hypotheses, best first", columns: ["output", "score", "log-probability"], rows: hypotheses })),
      part("beam", look.beam.length ? [marks, all] : null, tree),
    ];
  }
}

function columns(left, right) {
  return element("div", { class: "parts" }, element("div", {}, left), element("div", {}, right));
}

function part(title, ...children) {
  return element("section", { class: "part" }, element("h4", {}, title), ...children);
}
