/** List of sentences: sorted, filtered, navigated with arrow keys. */

import { element, rounded } from "./dom.js";

/** Sort orders of the list: name of each, and the number to sort by, ascending. */
function orders(run) {
  const found = {
    number: ["original order", (_, number) => number],
    score: [`${run.score}, lowest first`, (one) => least(one.scores)],
    expected: ["expected score, lowest first", (one) => least(one.expected)],
    use: ["source use, lowest first", (one) => least(one.source_use)],
    long: ["longest first", (one) => -one.length],
    short: ["shortest first", (one) => one.length],
  };
  if (run.bundles.length > 1) found.apart = ["largest score difference first", (one) => -spread(one.scores)];
  if (!run.source_use) delete found.use;
  if (run.sentences.every((one) => least(one.expected) === null)) delete found.expected;
  return found;
}

/** Return the first sentence that scores at least as high as three quarters of them. */
export function firstOfGood(run) {
  const scores = run.sentences.map((one) => least(one.scores) ?? -Infinity);
  const bound = [...scores].sort((a, b) => a - b)[Math.floor((scores.length * 3) / 4)];
  return scores.findIndex((score) => score >= bound);
}

/** Fill the list; `opened(number)` is called with the chosen sentence. */
export function sentenceList(run, opened) {
  const sorts = orders(run);
  const sort = element("select", { id: "sort", change: refill }, Object.entries(sorts).map(([name, [title]]) => element("option", { value: name }, title)));
  const filter = element("input", { id: "filter", type: "search", placeholder: "words", input: refill });
  const list = element("ol", { class: "sentences", role: "listbox", "aria-label": "sentences", keydown: walked });
  const count = element("output", { class: "note", for: "filter" });
  const items = run.sentences.map((sentence, number) => itemOf(run, sentence, number, () => select(number)));
  let chosen = 0;

  function refill() {
    const key = sorts[sort.value][1];
    const words = filter.value.toLowerCase();
    const numbers = items.map((_, number) => number).filter((number) => run.sentences[number].text.toLowerCase().includes(words));
    const rank = (number) => key(run.sentences[number], number) ?? Infinity;
    numbers.sort((a, b) => rank(a) - rank(b) || a - b);
    list.replaceChildren(...numbers.map((number) => items[number]));
    count.textContent = `${numbers.length} of ${items.length}`;
    settle();
  }

  function settle() {
    items.forEach((item, number) => item.setAttribute("aria-selected", String(number === chosen)));
    const reachable = items[chosen]?.isConnected ? items[chosen] : list.firstElementChild;
    items.forEach((item) => { item.tabIndex = item === reachable ? 0 : -1; });
    if (items[chosen]?.isConnected) scrollTo(items[chosen]);
  }

  /** Scroll only the list, not the page. */
  function scrollTo(item) {
    const [own, all] = [item.getBoundingClientRect(), list.getBoundingClientRect()];
    list.scrollTop += Math.min(0, own.top - all.top) + Math.max(0, own.bottom - all.bottom);
  }

  function select(number) {
    chosen = number;
    settle();
    opened(number);
  }

  function walked(event) {
    const item = event.target.closest("li");
    const moves = { ArrowDown: item.nextElementSibling, ArrowUp: item.previousElementSibling, Home: list.firstElementChild, End: list.lastElementChild };
    const next = moves[event.key];
    if (event.key === "Enter" || event.key === " ") item.click();
    else if (!next) return;
    event.preventDefault();
    if (next) {
      next.click();
      next.focus();
    }
  }

  const controls = element("div", { class: "list-controls" }, element("label", {}, "sort ", sort), element("label", {}, "filter ", filter), count);
  queueMicrotask(refill);
  return { node: element("section", { class: "browser", "aria-label": "choose a sentence" }, controls, list), select };
}

function itemOf(run, sentence, number, click) {
  const each = (values, digits) => values.map((value) => rounded(value, digits)).join(" / ");
  const figures = [`${run.score} ${each(sentence.scores, 1)}`];
  if (run.source_use) figures.push(`source use ${each(sentence.source_use, 2)}`);
  if (least(sentence.expected) !== null) figures.push(`expected ${each(sentence.expected, 1)}`);
  return element("li", { role: "option", "aria-selected": "false", "data-number": number, click }, element("span", { class: "text" }, sentence.text), element("span", { class: "figures" }, figures.join(" · ")));
}

function least(values) {
  const numbers = values.filter((value) => value !== null);
  return numbers.length ? Math.min(...numbers) : null;
}

function spread(values) {
  const numbers = values.filter((value) => value !== null);
  return numbers.length ? Math.max(...numbers) - Math.min(...numbers) : 0;
}
