/** Controls of the selection: weights or a method, slot, layer and head. */

import { element } from "./dom.js";
import { choose, onChoice, selection } from "./selection.js";
import { SLOTS } from "./views.js";

/** Draw the controls for the contents of a sentence's documents. */
export function controlsOf(looks) {
  const attentions = looks.flatMap((look) => look.attentions);
  const methods = [...new Map(looks.flatMap((look) => look.explanations ?? []).map((one) => [one.method, one])).values()];
  const slots = Object.keys(SLOTS).filter((slot) => attentions.some((one) => one.slot === slot));
  if (!slots.includes(selection.slot) && slots.length) selection.slot = slots[0];
  const layers = 1 + Math.max(0, ...attentions.map((one) => one.layer));
  selection.layer ??= layers - 1;
  const heads = Math.max(1, ...attentions.map((one) => one.weights?.shape[0] ?? 1));
  const range = (count, name) => Array.from({ length: count }, (_, number) => [number, `${name} ${number + 1}`]);
  const fields = {
    by: picker("show", [["weights", "attention weights"], ...methods.map((one) => [one.method, one.method])], (by) => choose({ by })),
    slot: picker("slot", slots.map((slot) => [slot, SLOTS[slot]]), (slot) => choose({ slot })),
    layer: picker("layer", range(layers, "layer"), (layer) => choose({ layer: Number(layer) })),
    head: picker("head", [["mean", "mean of heads"], ...range(heads, "head")], (head) => choose({ head: head === "mean" ? head : Number(head) })),
    side: picker("from", [["source", "source → output"], ["prefix", "output so far → output"]], (side) => choose({ side })),
  };

  function settle() {
    const byWeights = selection.by === "weights";
    for (const [name, { node, select }] of Object.entries(fields)) {
      select.value = String(selection[name]);
      node.hidden = name !== "by" && (name === "side") === byWeights;
    }
  }

  settle();
  const end = onChoice(settle);
  return { node: element("div", { class: "controls", role: "toolbar", "aria-label": "view" }, Object.values(fields).map((field) => field.node)), end };
}

function picker(title, options, changed) {
  const select = element("select", { "data-control": title, change: () => changed(select.value) }, options.map(([value, name]) => element("option", { value }, name)));
  return { node: element("label", {}, `${title} `, select), select };
}
