/** Title and tabs of the page: sentences, the run's facts, scores, curves and settings, tables. */

import { curveCharts } from "./curves.js";
import { at, element } from "./dom.js";
import { tableOf } from "./tables.js";

/** Draw the parts of a run besides its sentences. */
export function showTabs(run) {
  document.title = run.title;
  at("title").textContent = run.title;
  at("run-view").replaceChildren(runView(run));
  const tables = tablesView(run);
  if (tables) at("tables-view").replaceChildren(tables);
  tabs(tables ? ["sentences", "run", "tables"] : ["sentences", "run"]);
}

function tabs(names) {
  const buttons = names.map((name) => element("button", { role: "tab", id: `tab-${name}`, "aria-controls": `${name}-panel`, click: () => open(name) }, name));
  function open(name) {
    names.forEach((other, place) => {
      const isOpen = other === name;
      buttons[place].setAttribute("aria-selected", String(isOpen));
      buttons[place].tabIndex = isOpen ? 0 : -1;
      at(`${other}-panel`).classList.toggle("closed", !isOpen);
    });
  }
  at("tabs").replaceChildren(...buttons);
  at("tabs").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
    buttons[next].focus();
    open(names[next]);
  });
  open(names[0]);
}

/** Draw the run's document. */
function runView(run) {
  return element("div", {}, element("div", { class: "panels" }, run.bundles.map(card)), element("h3", {}, "learning curves"), curveCharts(run.bundles), differing(run.bundles));
}

/** Draw all tables of the bundles; null without tables. */
function tablesView(run) {
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

/** Return the settings in which bundles differ. */
function differing(bundles) {
  if (bundles.length < 2) return "";
  const keys = [...new Set(bundles.flatMap((bundle) => Object.keys(bundle.settings)))];
  const rows = keys.map((key) => [key, ...bundles.map((bundle) => bundle.settings[key] ?? null)]).filter(([, first, ...rest]) => rest.some((value) => value !== first));
  return tableOf({ title: "settings that differ", columns: ["key", ...bundles.map((bundle) => bundle.name)], rows });
}
