/** Tables of the documents, with numbers to three digits. */

import { element, rounded, scroller } from "./dom.js";

/** Draw a table's document. */
export function tableOf({ title, columns, rows, notes = [] }) {
  const head = element("tr", {}, columns.map((name) => element("th", { scope: "col" }, name)));
  const body = rows.map((row) => element("tr", {}, row.map((cell) =>
    typeof cell === "number" ? element("td", { class: "number" }, Number(rounded(cell))) : element("td", {}, cell ?? "–"))));
  const table = element("table", {}, element("caption", {}, title), element("thead", {}, head), element("tbody", {}, body));
  return element("div", {}, scroller({}, table), notes.map((note) => element("p", { class: "note" }, note)));
}
