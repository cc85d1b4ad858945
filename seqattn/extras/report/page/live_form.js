/** Form of the input: a text, or a question and a context; the search and the prefix. */

import { changesNow, remove, worded } from "./changes.js";
import { element } from "./dom.js";

const SIZES = { beam: ["beam_size", "beams", 1, 100], sampling: ["seed", "seed", 0, 2 ** 31] };

/** Create the form. Its buttons call `send()` and `stop()`; `request()` returns the request. */
export class LiveForm {
  constructor(live, { send, stop }) {
    this.live = live;
    this.writes = !live.searches.includes("spans");
    const enter = (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.node.requestSubmit();
    };
    const text = (name, rows) => element("textarea", { id: `live-${name}`, rows, required: "", keydown: enter });
    this.text = text("text", 3);
    this.context = live.asks ? text("context", 6) : null;
    this.prefix = element("input", { id: "live-prefix", type: "text", placeholder: "a space ends a word" });
    this.search = element("select", { id: "live-search", change: () => this.settle() }, live.searches.map((name) => element("option", { value: name }, name)));
    this.search.value = live.search;
    this.size = element("input", { id: "live-size", type: "number", step: 1 });
    this.sizeLabel = element("label", { for: "live-size" });
    this.sizeField = element("div", { class: "field" }, this.sizeLabel, this.size);
    this.sendButton = element("button", { id: "live-send" }, "send");
    this.stopButton = element("button", { id: "live-stop", type: "button", click: stop, disabled: "" }, "stop");
    this.status = element("p", { id: "live-status", class: "note", role: "status" });
    this.list = element("ul", { class: "changes", "aria-label": "active changes" });
    const submit = (event) => {
      event.preventDefault();
      send();
    };
    this.node = element("form", { class: "live-form", "aria-label": "model input", submit }, this.fields());
    this.settle();
    this.showChanges();
  }

  fields() {
    const field = (title, node) => element("div", { class: "field" }, element("label", { for: node.id }, title), node);
    const writing = this.writes ? [field("search", this.search), this.sizeField, field("output begins with", this.prefix)] : [];
    return [
      field(this.live.asks ? "question" : "text", this.text),
      this.context ? field("context", this.context) : [],
      writing,
      element("div", { class: "buttons" }, this.sendButton, this.stopButton),
      this.status,
      element("section", { "aria-label": "changes to the model" }, element("h4", {}, "changes"), this.list),
      element("p", { class: "note" }, "API: ", element("a", { href: "docs" }, "docs")),
    ];
  }

  /** Show the numeric setting of the chosen search. */
  settle() {
    const [, title, min, max] = SIZES[this.search.value] ?? [];
    this.sizeField.hidden = !title;
    this.sizeLabel.textContent = title ?? "";
    Object.assign(this.size, { min: min ?? "", max: max ?? "", placeholder: "default", value: "" });
  }

  /** Enter an example and send it. */
  fill({ text, context }) {
    this.text.value = text;
    if (this.context) this.context.value = context;
    this.node.requestSubmit();
  }

  get isGreedy() {
    return this.search.value === "greedy";
  }

  /** Return the request, without changes. */
  request() {
    const request = { text: this.text.value };
    if (this.context) request.context = this.context.value;
    if (!this.writes) return request;
    const name = this.search.value === this.live.search ? {} : { name: this.search.value };
    request.generation = { ...name, ...(this.size.value ? { [SIZES[this.search.value][0]]: Number(this.size.value) } : {}) };
    if (this.prefix.value.trim()) request.prefix = this.prefix.value;
    return request;
  }

  /** List the active changes. */
  showChanges() {
    const items = changesNow().map((change) => element("li", {}, `${worded(change)} `, element("button", { type: "button", "aria-label": `remove: ${worded(change)}`, click: () => remove(change) }, "remove")));
    this.list.replaceChildren(...(items.length ? items : [element("li", { class: "note" }, "none; choose a head or a cell of a map")]));
  }

  /** Show the status; screen readers announce errors at once. */
  tell(line, isError = false) {
    this.status.setAttribute("role", isError ? "alert" : "status");
    this.status.className = isError ? "note reason" : "note";
    this.status.textContent = line;
    if (isError) this.status.scrollIntoView({ block: "nearest" });
  }

  /** Mark whether a request is running. */
  busy(isBusy) {
    this.stopButton.disabled = !isBusy;
  }
}
