/** The matrix that the selection asks for, of one bundle's look at a sentence. */

import { headMatrix, matrix } from "./arrays.js";
import { labels } from "./pieces.js";

/** What each slot is called. */
export const SLOTS = {
  cross: "source → output",
  encoder: "source → source",
  decoder: "output before → output",
  question: "question → context",
};

/** The pieces of both sides of a slot: queries down the side, keys along the top. */
function sidesOf(look, slot) {
  if (slot === "question") return [labels(look.context), labels(look.question)];
  const source = labels(look.source);
  const target = labels(look.target);
  const before = ["<s>", ...target.slice(0, -1)];
  if (slot === "encoder") return [source, source];
  return slot === "decoder" ? [target, before] : [target, source];
}

/** The attention that the selection names, or the nearest layer that there is. */
export function attentionOf(look, selection) {
  const same = look.attentions.filter((one) => one.slot === selection.slot);
  return same.find((one) => one.layer === selection.layer) ?? same.at(-1) ?? null;
}

/**
 * A matrix with the pieces of its rows and columns, or a reason why there is none.
 * Rows are what was predicted (or read), columns what it was read from.
 */
export function viewOf(look, selection) {
  return selection.by === "weights" ? weightsView(look, selection) : methodView(look, selection);
}

function weightsView(look, selection) {
  const attention = attentionOf(look, selection);
  if (!attention) return { reason: `there is no attention ${SLOTS[selection.slot] ?? ""} here` };
  if (!attention.weights) return { reason: attention.reason };
  const found = headMatrix(attention.weights, selection.head);
  const heads = attention.weights.shape[0];
  const which = selection.head === "mean" ? "mean of heads" : `head ${Math.min(selection.head, heads - 1) + 1}`;
  return sided(look, selection.slot, found, `${attention.name}, ${which}`);
}

function methodView(look, selection) {
  const found = look.explanations?.find((one) => one.method === selection.by);
  if (!found) return { reason: `there are no contributions by ${selection.by} here` };
  if (!found.source) return { reason: found.reason };
  const slot = selection.side === "prefix" ? "decoder" : "cross";
  return sided(look, slot, matrix(found[selection.side]), `${found.method} (${found.cites})`);
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
