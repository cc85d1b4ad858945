/** Matrix for the selection, from one bundle's look at a sentence. */

import { headMatrix, matrix } from "./arrays.js";
import { labels } from "./pieces.js";
import { METHODS } from "./terms.js";

/** Name of each slot. */
export const SLOTS = {
  cross: "source → output",
  encoder: "source → source",
  decoder: "output so far → output",
  question: "question → context",
};

/** Return the pieces of both sides of a slot: queries down the side, keys along the top. */
function sidesOf(look, slot) {
  if (slot === "question") return [labels(look.context), labels(look.question)];
  const source = labels(look.source);
  const target = labels(look.target);
  const before = ["<s>", ...target.slice(0, -1)];
  if (slot === "encoder") return [source, source];
  return slot === "decoder" ? [target, before] : [target, source];
}

/** Return the selected attention, or that of the nearest layer. */
export function attentionOf(look, selection) {
  const same = look.attentions.filter((one) => one.slot === selection.slot);
  return same.find((one) => one.layer === selection.layer) ?? same.at(-1) ?? null;
}

/**
 * Return a matrix with the pieces of its rows and columns, or a reason why there is none.
 * Rows are predicted (or read) tokens, columns the tokens that they attend to.
 */
export function viewOf(look, selection) {
  return selection.by === "weights" ? weightsView(look, selection) : methodView(look, selection);
}

function weightsView(look, selection) {
  const attention = attentionOf(look, selection);
  if (!attention) return { reason: `no attention ${SLOTS[selection.slot] ?? ""}` };
  if (!attention.weights) return { reason: attention.reason };
  const found = headMatrix(attention.weights, selection.head);
  const heads = attention.weights.shape[0];
  const which = selection.head === "mean" ? "mean of heads" : `head ${Math.min(selection.head, heads - 1) + 1}`;
  return sided(look, selection.slot, found, `${attention.name}, ${which}`);
}

function methodView(look, selection) {
  const found = look.explanations?.find((one) => one.method === selection.by);
  if (!found) return { reason: `no contributions by ${selection.by}` };
  if (!found.source) return { reason: found.reason };
  const slot = selection.side === "prefix" ? "decoder" : "cross";
  const view = sided(look, slot, matrix(found[selection.side]), `${found.method} (${found.cites}): ${METHODS[found.method]}`);
  if (!found.instead) return view;
  return { ...view, rowLabels: view.rowLabels.map((piece, row) => `${piece}, not ${labels(found.instead)[row]}`) };
}

function sided(look, slot, found, title) {
  const [rows, columns] = sidesOf(look, slot);
  return {
    ...found,
    title,
    slot,
    rowLabels: rows.slice(0, found.rows),
    columnLabels: columns.slice(0, found.columns),
  };
}
