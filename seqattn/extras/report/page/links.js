/** Input on the left, output on the right, and links between them. */

import { largest } from "./arrays.js";
import { heat, isDark } from "./colors.js";
import { drawn, element, rounded } from "./dom.js";

const ROW = 24; // pixels, as in the style
const FAINT = 0.15; // of the largest: weaker links are drawn only for the word under the pointer
const MANY = 80; // words of both sides: beyond that only the strongest link of each is drawn

/**
 * Draw a view. Return its node, and `point(side, places)`, which shows the links of some
 * positions of a side ("read" or "said"), or all strong links if there are none.
 */
export function linksOf(view, told) {
  const most = largest(view.values) || 1;
  const height = ROW * Math.max(view.rows, view.columns);
  const lines = drawn("svg", { viewBox: `0 0 100 ${height}`, preserveAspectRatio: "none", "aria-hidden": "true", style: `height:${height}px` });
  const sides = { read: tokens(view.columnLabels, "read"), said: tokens(view.rowLabels, "said") };
  const value = (row, column) => view.values[row * view.columns + column];

  const isLong = view.rows + view.columns > MANY;
  const strongest = Array.from({ length: view.rows }, (_, row) => order(view, row)[0]);

  function line(row, column, strength) {
    const [from, to] = [(column + 0.5) * ROW, (row + 0.5) * ROW];
    return drawn("path", {
      d: `M0 ${from} C50 ${from} 50 ${to} 100 ${to}`,
      class: strength < 0 ? "link negative" : "link",
      "stroke-opacity": Math.min(1, Math.abs(strength)).toFixed(4),
      "stroke-width": (0.5 + 3.5 * Math.abs(strength)).toFixed(2),
      "data-row": row,
      "data-column": column,
    });
  }

  function shade(buttons, strengths) {
    const dark = isDark();
    buttons.forEach((button, place) => {
      const strength = strengths ? strengths[place] : 0;
      const color = heat(strength, dark);
      button.style.background = strengths ? `rgb(${color})` : "";
      button.style.color = strengths ? contrast(color) : "";
      button.dataset.value = strengths ? (strength * most).toFixed(6) : "";
    });
  }

  function point(side, places) {
    const some = side !== null && places.length > 0;
    const kept = [];
    for (let row = 0; row < view.rows; row += 1) {
      for (let column = 0; column < view.columns; column += 1) {
        const strength = value(row, column) / most;
        const shown = Math.abs(strength) >= FAINT && (!isLong || column === strongest[row]);
        const own = some && places.includes(side === "said" ? row : column);
        if (own ? Math.abs(strength) > 0.005 : !some && shown) {
          kept.push(line(row, column, some ? strength : strength * 0.8));
        }
      }
    }
    lines.replaceChildren(...kept);
    const other = side === "said" ? "read" : "said";
    if (!some) {
      shade(sides.read, null);
      shade(sides.said, null);
    } else {
      shade(sides[other], sides[other].map((_, place) => sum(places, (own) => (side === "said" ? value(own, place) : value(place, own))) / most));
      shade(sides[side], null);
    }
    for (const name of ["read", "said"]) {
      sides[name].forEach((button, place) => button.classList.toggle("pointed", some && name === side && places.includes(place)));
    }
  }

  function tokens(pieces, side) {
    return pieces.map((piece, place) =>
      element("button", {
        class: "token",
        title: piece,
        tabindex: place ? -1 : 0,
        "data-side": side,
        "data-place": place,
        pointerenter: () => told(side, place),
        focus: () => told(side, place),
        blur: () => told(null, null),
      }, piece),
    );
  }

  function walked(event) {
    const { side, place } = event.target.dataset;
    if (!side) return;
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    let next = null;
    if (event.key in moves) next = sides[side][Number(place) + moves[event.key]];
    if (event.key === "ArrowLeft") next = sides.read[Math.min(place, sides.read.length - 1)];
    if (event.key === "ArrowRight") next = sides.said[Math.min(place, sides.said.length - 1)];
    if (event.key === "Escape") event.target.blur();
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  const column = (name, title) => element("div", { class: "tokens", role: "group", "aria-label": title }, sides[name]);
  const node = element("div", { class: isLong ? "links long" : "links", keydown: walked, pointerleave: () => told(null, null) }, column("read", "input tokens"), lines, column("said", "predicted tokens"));
  point(null, []);
  return { node, point, describe: (row) => described(view, row) };
}

/** Return the columns of a row, the strongest first. */
function order(view, row) {
  const values = view.values.subarray(row * view.columns, (row + 1) * view.columns);
  return Array.from(values.keys()).sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]));
}

/** Describe the three strongest columns of a row. */
function described(view, row) {
  const best = order(view, row).slice(0, 3);
  const told = best.map((column) => `${view.columnLabels[column]} ${rounded(view.values[row * view.columns + column])}`);
  return `${view.rowLabels[row]} ← ${told.join(", ")}`;
}

function sum(places, value) {
  return places.reduce((total, place) => total + value(place), 0);
}

function contrast([red, green, blue]) {
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#111" : "#fff";
}
