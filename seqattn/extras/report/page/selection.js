/** Selection: one choice for all bundles of the page. */

const listeners = new Set();

/** "weights" or a method; slot, layer (null: the last), and head ("mean" or a number) of the
 * weights; the side of contributions, "source" or "prefix". */
export const selection = { by: "weights", slot: "cross", layer: null, head: "mean", side: "source" };

/** Change parts of it, and notify listeners. */
export function choose(changes) {
  Object.assign(selection, changes);
  for (const listener of listeners) listener();
}

/** Call `listener` at each change; return a function that unsubscribes. */
export function onChoice(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
