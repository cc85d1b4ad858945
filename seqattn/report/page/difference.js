/** One bundle's map less another's, where both have the same rows and columns. */

import { largest } from "./arrays.js";
import { element } from "./dom.js";
import { gridMap } from "./grid_map.js";

/** Draws what two views differ in; nothing where they cannot be compared cell by cell. */
export function difference(bundles, [first, second, ...more]) {
  if (!second || more.length || first.reason || second.reason || !alike(first, second)) return [];
  const values = first.values.map((value, place) => value - second.values[place]);
  const view = { ...first, values, title: `${bundles[0].name} less ${bundles[1].name}` };
  if (!largest(values)) return [element("p", { class: "note" }, `the maps of ${bundles[0].name} and ${bundles[1].name} are equal here`)];
  const note = element("p", { class: "note" }, `blue or bright: more in ${bundles[0].name}; orange: more in ${bundles[1].name}`);
  return [element("section", { class: "panel part" }, element("h4", {}, `difference: ${view.title}`), note, gridMap(view, () => {}))];
}

function alike(first, second) {
  const [one, other] = [first, second].map((view) => JSON.stringify([view.rowLabels, view.columnLabels]));
  return one === other;
}
