/** Changes inside the model: as a list, and as a request's interventions. */

const listeners = new Set();
let changes = [];

/** Active changes, in order: kind, attention, its place in words, and further fields of the kind. */
export function changesNow() {
  return changes;
}

/** Call `listener` when the changes are updated. */
export function onChange(listener) {
  listeners.add(listener);
}

/** Return the active change like this one, or undefined. */
export function inForce(change) {
  return changes.find((one) => placeOf(one) === placeOf(change));
}

/** Activate a change, replacing one at the same place. */
export function put(change) {
  settle([...changes.filter((one) => placeOf(one) !== placeOf(change)), change]);
}

/** Remove a change. */
export function remove(change) {
  settle(changes.filter((one) => placeOf(one) !== placeOf(change)));
}

/** Remove changes that name tokens of a sentence, without notifying listeners. */
export function forgetTokens() {
  changes = changes.filter((one) => one.kind !== "weight");
}

/** Return changes as `intervene` of a request; null for none. `heads`: number of gates of each attention. */
export function asIntervene(heads) {
  if (!changes.length) return null;
  const of = (kind) => changes.filter((one) => one.kind === kind);
  const gates = {};
  for (const { attention, head } of of("off")) {
    gates[attention] ??= Array(heads[attention]).fill(1);
    gates[attention][head] = 0;
  }
  const weights = of("weight").map(({ attention, head, step, key, weight }) => ({ attention, head, step, key, weight }));
  return { gates, uniform: of("uniform").map((one) => one.attention), permuted: of("permuted").map((one) => one.attention), weights };
}

/** Describe a change in words. */
export function worded({ kind, head, weight, place, cell }) {
  const which = head === null || head === undefined ? "all heads" : `head ${head + 1}`;
  if (kind === "off") return `${place}: ${which} off`;
  if (kind === "weight") return `${place}, ${which}: ${cell} = ${weight}`;
  return `${place}: ${kind}`;
}

function placeOf({ kind, attention, head, step, key }) {
  return JSON.stringify([kind, attention, head, step, key]);
}

function settle(next) {
  changes = next;
  for (const listener of listeners) listener();
}
