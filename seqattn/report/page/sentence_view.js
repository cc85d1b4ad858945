/** A sentence with a panel for each bundle, side by side. */

import { controlsOf } from "./controls.js";
import { difference } from "./difference.js";
import { element } from "./dom.js";
import { Panel } from "./panel.js";
import { onChoice } from "./selection.js";

let ends = [];

/**
 * Draws a sentence's document into `place`; any document will do, of this run or a new one.
 * `tools` are what changes the model, for each look, see `Panel`; none of a page that shows alone.
 */
export function showSentence(run, sentence, place, tools = []) {
  ends.forEach((end) => end());
  const controls = controlsOf(sentence.looks);
  const panels = [];
  const pointed = (own, name, word) => panels.forEach((panel) => panel !== own && panel.pointAtNamed(name, word));
  sentence.looks.forEach((look, number) => {
    const other = sentence.looks.length === 2 ? sentence.looks[1 - number] : null;
    panels.push(new Panel({ run, bundle: run.bundles[number], look, sentence, other, pointed, tools: tools[number] }));
  });
  const apart = element("div", {});
  const compare = () => apart.replaceChildren(...difference(run.bundles, panels.map((panel) => panel.view)));
  const redraw = () => {
    panels.forEach((panel) => panel.draw());
    compare();
  };
  compare();
  ends = [controls.end, onChoice(redraw)];
  const references = sentence.references.map((text) => element("p", {}, element("b", {}, sentence.context === null ? "reference " : "right "), text));
  const head = element("header", { class: "sentence" }, element("h2", { class: sentence.text.length > 160 ? "long" : null }, sentence.text), references);
  place.replaceChildren(head, controls.node, element("div", { class: "panels" }, panels.map((panel) => panel.node)), apart);
  return redraw;
}
