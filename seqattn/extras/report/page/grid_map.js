/** Matrix with labels that shows the number of the cell under the pointer or arrow keys. */

import { largest } from "./arrays.js";
import { paint } from "./colors.js";
import { element, rounded, scroller } from "./dom.js";

/**
 * Draw a view; `pointed(row)` is called with the row under the pointer, or null, and `picked(row,
 * column)`, if given, with a clicked cell.
 */
export function gridMap(view, pointed, picked = null) {
  const canvas = element("canvas", {
    tabindex: 0,
    role: "img",
    "aria-label": `map of ${view.title}: ${view.rows} rows, ${view.columns} columns; use arrow keys to read cells${picked ? ", Enter to choose one" : ""}`,
  });
  paint(canvas, view);
  const readout = element("output", { class: "readout", "aria-live": "polite" }, `full color: ${rounded(largest(view.values))}; point at a cell or use arrow keys`);
  const cursor = element("span", { class: "cursor", hidden: "" });
  const at = { row: 0, column: 0 };

  function show(row, column) {
    at.row = Math.max(0, Math.min(view.rows - 1, row));
    at.column = Math.max(0, Math.min(view.columns - 1, column));
    cursor.hidden = false;
    cursor.style.setProperty("--row", at.row);
    cursor.style.setProperty("--column", at.column);
    const value = view.values[at.row * view.columns + at.column];
    const more = view.told ? `, ${view.told(at.row, at.column)}` : "";
    readout.textContent = `${view.rowLabels[at.row]} ← ${view.columnLabels[at.column]}: ${rounded(value)}${more}`;
    pointed(at.row);
  }

  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * view.rows);
    show(row, Math.floor(((event.clientX - box.left) / box.width) * view.columns));
  });
  canvas.addEventListener("click", () => picked?.(at.row, at.column));
  canvas.addEventListener("pointerleave", () => {
    cursor.hidden = true;
    pointed(null);
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (event.key === "Enter") picked?.(at.row, at.column);
    if (!move) return;
    event.preventDefault();
    show(at.row + move[0], at.column + move[1]);
  });
  const labelled = (pieces, name) =>
    element("div", { class: name, "aria-hidden": "true" }, pieces.map((piece) => element("span", { title: piece }, piece)));
  const size = `--rows:${view.rows};--columns:${view.columns}`;
  const body = element("div", { class: "cells" }, canvas, cursor);
  const grid = element("div", { class: "grid-map", style: size }, labelled(view.columnLabels, "column-labels"), labelled(view.rowLabels, "row-labels"), body);
  return element("div", {}, scroller({}, grid), readout);
}
