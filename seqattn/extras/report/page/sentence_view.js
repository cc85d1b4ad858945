/** Sentence with a panel for each bundle, side by side, and the differences of two. */

import { largest } from "./arrays.js";
import { controlsOf } from "./controls.js";
import { element } from "./dom.js";
import { gridMap } from "./grid_map.js";
import { Panel } from "./panel.js";
import { labels, signsOf } from "./pieces.js";
import { onChoice } from "./selection.js";

let ends = [];

/**
 * Draw a sentence's document, of this run or a new one, into `place`.
 * `tools`, one per look, change the model, see `Panel`; there are none on a static page.
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
  const references = sentence.references.map((text) => element("p", {}, element("b", {}, sentence.context === null ? "reference " : "correct answer "), text));
  const head = element("header", { class: "sentence" }, element("h2", { class: sentence.text.length > 160 ? "long" : null }, sentence.text), references);
  const signs = element("p", { class: "legend" }, signsOf(sentence.looks.flatMap(signsIn)));
  place.replaceChildren(head, controls.node, signs, frontChoice(panels, tools.length ? panels.length - 1 : 0), element("div", { class: "panels" }, panels.map((panel) => panel.node)), apart);
  return redraw;
}

function signsIn(look) {
  const sides = "source" in look ? [look.source, look.target, ["<s>"]] : [look.question, look.context];
  return sides.flatMap(labels);
}

/** Create buttons with the outputs, one of which shows its panel on a page too narrow for several. */
function frontChoice(panels, first) {
  if (panels.length < 2) return "";
  const buttons = panels.map((panel, number) => element("button", { click: () => open(number) }, element("b", {}, panel.bundle.name), ` ${panel.look.output || "(empty)"}`));
  function open(number) {
    panels.forEach((panel, place) => {
      panel.node.classList.toggle("behind", place !== number);
      buttons[place].setAttribute("aria-pressed", String(place === number));
    });
  }
  open(first);
  return element("div", { class: "front-choice", role: "group", "aria-label": "output to show" }, buttons);
}

/** Draw the difference of two views; nothing if they cannot be compared cell by cell. */
function difference(bundles, [first, second, ...more]) {
  if (!second || more.length || first.reason || second.reason || !alike(first, second)) return [];
  const values = first.values.map((value, place) => value - second.values[place]);
  const view = { ...first, values, title: `${bundles[0].name} minus ${bundles[1].name}` };
  if (!largest(values)) return [element("p", { class: "note" }, `the maps of ${bundles[0].name} and ${bundles[1].name} are equal here`)];
  const note = element("p", { class: "note" }, `blue or bright: more in ${bundles[0].name}; orange: more in ${bundles[1].name}`);
  return [element("section", { class: "panel part" }, element("h4", {}, `difference: ${view.title}`), note, gridMap(view, () => {}))];
}

function alike(first, second) {
  const [one, other] = [first, second].map((view) => JSON.stringify([view.rowLabels, view.columnLabels]));
  return one === other;
}
