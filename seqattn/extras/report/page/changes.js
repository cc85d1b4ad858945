/** What is changed inside the model: a list, and the same as a request has it. */

const listeners = new Set();
let changes = [];

/** All that are in force, in their order: kind, attention, its place in words, and what else such a change has. */
export function changesNow() {
  return changes;
}

/** Calls `listener` when they change. */
export function onChange(listener) {
  listeners.add(listener);
}

/** The one like this that is in force, or undefined. */
export function inForce(change) {
  return changes.find((one) => placeOf(one) === placeOf(change));
}

/** Puts a change in force, in place of one at the same place. */
export function put(change) {
  settle([...changes.filter((one) => placeOf(one) !== placeOf(change)), change]);
}

/** Takes a change away. */
export function remove(change) {
  settle(changes.filter((one) => placeOf(one) !== placeOf(change)));
}

/** Takes those away that name tokens of a sentence, and tells nobody. */
export function forgetTokens() {
  changes = changes.filter((one) => one.kind !== "weight");
}

/** Changes as `intervene` of a request; null for none. `heads`: how many gates each attention has. */
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

/** A change in words. */
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
