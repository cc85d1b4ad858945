/** First view of a server's page: what the model does, and inputs to try. */

import { element } from "./dom.js";

const TASKS = {
  translation: "translates",
  summarization: "summarizes texts",
  qa: "answers questions with words of their context",
  qa_generative: "answers questions on a context in its own words",
};

/** Draw the view; `chosen(example)` is called with an example that is clicked. */
export function welcome(live, chosen) {
  const [source, target] = live.languages.map(language);
  const does = TASKS[live.task] ?? "turns texts into texts";
  const kind = live.asks ? "question" : "text";
  const buttons = live.examples.map((example) => element("button", { click: () => chosen(example) }, example.text));
  return element("section", { class: "welcome" },
    element("h2", {}, `${live.run.title} ${does}${target ? ` ${source} to ${target}` : ""}`),
    element("p", {}, live.data ? `A model trained from scratch on data=${live.data}. ` : "", `Type a ${kind} and press Enter${buttons.length ? `, or try ${buttons.length > 1 ? "one of these" : "this"}:` : "."}`),
    element("div", { class: "examples" }, buttons),
    element("p", { class: "note" }, "Then see which tokens the model attends to, and change the model: switch heads off, or set weights."));
}

/** Return the English name of a language's code, or the code. */
function language(code) {
  try {
    return new Intl.DisplayNames("en", { type: "language" }).of(code);
  } catch {
    return code; // such as a file's suffix
  }
}
