/** Lens: what the decoder would predict after each layer. */

import { matrix } from "./arrays.js";
import { element } from "./dom.js";
import { gridMap } from "./grid_map.js";
import { label, labels } from "./pieces.js";

const ABOUT = "How to read it: each row puts the decoder's state after a layer straight into the output layer; the color is the probability of the token that was written in the end, so a column shows where it was decided.";

/** Draw the lens of a look. */
export function lensOf(look) {
  const { lens } = look;
  if (!lens) return element("p", { class: "note" }, "there is no source to read");
  if (!lens.probability) return element("p", { class: "note" }, `no lens: ${lens.reason}`);
  const view = { ...matrix(lens.probability), title: "probability of the output's token after each layer" };
  view.rowLabels = lens.rank.map((_, row) => (row ? `layer ${row}` : "embedding"));
  view.columnLabels = labels(look.target);
  view.told = (row, column) => `rank ${lens.rank[row][column].toLocaleString("en")}; likeliest: ${label(lens.likeliest[row][column], 0)}`;
  return element("div", { class: "lens" }, gridMap(view, () => {}), element("p", { class: "note" }, ABOUT));
}
