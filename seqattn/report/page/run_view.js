/** What the bundles are: facts, scores with signatures, curves, settings. */

import { curveCharts } from "./curves.js";
import { element } from "./dom.js";
import { tableOf } from "./tables.js";

/** Draws the run's document. */
export function runView(run) {
  return element("div", {}, element("div", { class: "panels" }, run.bundles.map(card)), element("h3", {}, "learning curves"), curveCharts(run.bundles), differing(run.bundles));
}

/** Draws all tables of the bundles; null where there are none. */
export function tablesView(run) {
  const found = run.bundles.flatMap((bundle) => bundle.tables.map((table) => tableOf({ ...table, title: `${bundle.name}: ${table.title}` })));
  return found.length ? element("div", {}, found) : null;
}

function card(bundle) {
  const facts = Object.entries(bundle.facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  const scores = bundle.scores.map((one) => [one.name, one.value, one.signature]);
  const settings = Object.entries(bundle.settings);
  return element("article", { class: "panel" }, element("h3", {}, bundle.name), element("dl", {}, facts),
    tableOf({ title: "scores", columns: ["score", "value", "signature"], rows: scores }),
    element("details", {}, element("summary", {}, "settings"), tableOf({ title: "settings", columns: ["key", "value"], rows: settings })));
}

/** The settings in which bundles differ. */
function differing(bundles) {
  if (bundles.length < 2) return "";
  const keys = [...new Set(bundles.flatMap((bundle) => Object.keys(bundle.settings)))];
  const rows = keys.map((key) => [key, ...bundles.map((bundle) => bundle.settings[key] ?? null)]).filter(([, first, ...rest]) => rest.some((value) => value !== first));
  return tableOf({ title: "settings that differ", columns: ["key", ...bundles.map((bundle) => bundle.name)], rows });
}
