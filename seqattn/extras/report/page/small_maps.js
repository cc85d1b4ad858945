/** Layers by heads as small maps; the chosen one is shown large. */

import { headMatrix } from "./arrays.js";
import { paint } from "./colors.js";
import { element, scroller } from "./dom.js";
import { choose, selection } from "./selection.js";

/** Return the roles of heads in a bundle's tables, by attention and head (from 1). */
export function rolesOf(bundle) {
  const roles = new Map();
  for (const { columns, rows } of bundle.tables) {
    const [attention, head, role] = ["attention", "head", "role"].map((name) => columns.indexOf(name));
    if (Math.min(attention, head, role) < 0) continue;
    for (const row of rows) if (row[role]) roles.set(`${row[attention]} ${row[head]}`, row[role]);
  }
  return roles;
}

/** Draw all maps of the selected slot; heads are crossed out if `isOff(attention, head)`. */
export function smallMaps(look, roles, isOff = () => false) {
  const layers = look.attentions.filter((one) => one.slot === selection.slot);
  if (!layers.length) return element("p", { class: "note" }, "no attention in this slot");
  return scroller({ class: "small-maps scroll" }, layers.map((attention) => layerRow(attention, roles, isOff)));
}

function layerRow(attention, roles, isOff) {
  const name = element("span", { class: "layer-name", title: attention.name }, `layer ${attention.layer + 1}`);
  if (!attention.weights) return element("div", { class: "layer" }, name, element("span", { class: "note" }, attention.reason));
  const heads = Array.from({ length: attention.weights.shape[0] }, (_, head) => head);
  return element("div", { class: "layer" }, name, heads.map((head) => headMap(attention, head, roles, isOff(attention.name, head))));
}

function headMap(attention, head, roles, isOff) {
  const role = roles.get(`${attention.name} ${head + 1}`);
  const canvas = element("canvas", { "aria-hidden": "true" });
  paint(canvas, headMatrix(attention.weights, head));
  const isChosen = selection.by === "weights" && selection.layer === attention.layer && selection.head === head;
  const title = `layer ${attention.layer + 1}, head ${head + 1}${role ? `: ${role}` : ""}${isOff ? ", switched off" : ""}`;
  return element("button", {
    class: isOff ? "head off" : "head",
    title,
    "aria-label": title,
    "aria-pressed": String(isChosen),
    "data-head": `${attention.layer} ${head}`,
    "data-focus": `head ${attention.layer} ${head}`,
    click: () => choose({ by: "weights", layer: attention.layer, head }),
  }, canvas, element("span", { class: "role" }, role ?? `${head + 1}`));
}
