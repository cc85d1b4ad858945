/** Puts the page together. */

import { runDocument, sentenceDocument } from "./data.js";
import { element } from "./dom.js";
import { runView, tablesView } from "./run_view.js";
import { sentenceList } from "./sentence_list.js";
import { showSentence } from "./sentence_view.js";
import { themeSwitch } from "./theme.js";

const at = (id) => document.getElementById(id);

async function start() {
  const run = await runDocument();
  document.title = run.title;
  at("title").textContent = run.title;
  let redraw = () => {};
  let wanted = 0;
  const list = sentenceList(run, async (number) => {
    wanted = number;
    history.replaceState(null, "", `#${number}`);
    const sentence = await sentenceDocument(number);
    if (number === wanted) redraw = showSentence(run, sentence, at("sentence")); // another may have been chosen meanwhile
    document.documentElement.dataset.shown = wanted;
  });
  at("browser").replaceChildren(list.node);
  at("run-view").replaceChildren(runView(run));
  const tables = tablesView(run);
  if (tables) at("tables-view").replaceChildren(tables);
  tabs(tables ? ["sentences", "run", "tables"] : ["sentences", "run"]);
  themeSwitch(at("theme"), () => redraw());
  const first = Number(location.hash.slice(1));
  if (run.sentences.length) list.select(first < run.sentences.length ? first : 0);
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

start().catch((error) => {
  at("sentence").replaceChildren(element("p", { class: "note reason", role: "alert" }, `this page cannot be shown: ${error.message}`));
  throw error;
});
