/** What is looked at: one choice for all bundles of the page. */

const listeners = new Set();

/** By "weights" or a method; slot, layer (null: the last), and head ("mean" or a number) of the
 * weights; the side of contributions, "source" or "prefix". */
export const selection = { by: "weights", slot: "cross", layer: null, head: "mean", side: "source" };

/** Changes some of it, and tells who listens. */
export function choose(changes) {
  Object.assign(selection, changes);
  for (const listener of listeners) listener();
}

/** Calls `listener` at each change; gives a function that ends it. */
export function onChoice(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
