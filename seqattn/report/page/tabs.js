/** The title of the page and its parts: sentences, run, tables. */

import { element } from "./dom.js";
import { runView, tablesView } from "./run_view.js";

const at = (id) => document.getElementById(id);

/** Draws what the page shows of a run beside its sentences. */
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
