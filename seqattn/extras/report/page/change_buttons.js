/** Buttons for changes to the model: heads off, weights uniform or permuted, one weight set. */

import { inForce, put, remove } from "./changes.js";
import { element, rounded } from "./dom.js";
import { selection } from "./selection.js";
import { SLOTS, attentionOf } from "./views.js";

/** Return true if a head of an attention is switched off. */
export function isOff(attention, head) {
  return Boolean(inForce({ kind: "off", attention, head }));
}

/** Create buttons for the selected attention and head. `heads`: number of gates of each attention. */
export function changeButtons(look, heads) {
  const found = attentionOf(look, selection);
  if (!found) return [];
  const attention = found.name;
  const place = placeOf(found);
  const count = heads[attention] ?? 0;
  const drawn = found.weights?.shape[0];
  let some = [];
  if (count && drawn !== count) some = Array.from({ length: count }, (_, head) => head);
  else if (count && selection.head !== "mean") some = [Math.min(selection.head, count - 1)];
  const gates = some.map((head) => toggle({ kind: "off", attention, place, head }, `switch head ${head + 1} off`, `switch head ${head + 1} on again`));
  const whole = found.weights ? [toggle({ kind: "uniform", attention, place }, "make weights uniform", "undo uniform"), toggle({ kind: "permuted", attention, place }, "permute weights", "undo permuted")] : [];
  const hint = count && !gates.length ? "choose a head to switch it off" : null;
  return element("div", { class: "changing", role: "group", "aria-label": `change ${place}` }, element("span", { class: "note", title: attention }, `${place}: `), gates, whole, hint && element("span", { class: "note" }, hint));
}

function placeOf({ slot, layer }) {
  return `${SLOTS[slot]}, layer ${layer + 1}`;
}

function toggle(change, title, again) {
  const isOn = Boolean(inForce(change));
  return element("button", { "aria-pressed": String(isOn), "data-change": change.kind, "data-focus": `${change.kind} ${change.head}`, click: () => (isOn ? remove(change) : put(change)) }, isOn ? again : title);
}

/** Create a field for one weight of the map, or the reason why there is none. */
export function weightField(look, view, row, column, isGreedy) {
  const found = selection.by === "weights" && attentionOf(look, selection);
  if (!found || view.slot === "question") return "";
  const cell = `${view.rowLabels[row]} ← ${view.columnLabels[column]}`;
  const refused = (line) => element("p", { class: "note reason", role: "status" }, line);
  if (view.slot === "decoder" && column > row) return refused(`${cell}: later tokens cannot be attended to`);
  if (!isGreedy) return refused("setting a weight requires greedy search; choose greedy and send again");
  const head = selection.head === "mean" ? null : Math.min(selection.head, found.weights.shape[0] - 1);
  const field = element("input", { type: "number", min: 0, max: 1, step: "any", required: "", value: rounded(view.values[row * view.columns + column]), "aria-label": `weight of ${cell}` });
  const set = (event) => {
    event.preventDefault();
    put({ kind: "weight", attention: found.name, place: placeOf(found), head, step: row, key: column, weight: Number(field.value), cell: `${cell} (step ${row + 1})` });
  };
  return element("form", { class: "weight-field", submit: set },
    element("label", {}, `${cell}, ${head === null ? "all heads" : `head ${head + 1}`}: `, field), " ", element("button", {}, "set"),
    element("p", { class: "note" }, "the other weights of the row are rescaled proportionally"));
}
