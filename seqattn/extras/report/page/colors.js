/** Colors for color-blind readers: ramps of lightness, and Okabe and Ito's palette. */

import { largest } from "./arrays.js";

const LIGHT = ["#ffffff", "#d6e6f4", "#9dcae1", "#4f9bcb", "#1d6cb1", "#08306b"].map(parts);
const DARK = ["#0b1524", "#1f3a5f", "#57606b", "#948e77", "#c8b866", "#fee838"].map(parts); // as cividis
const NEGATIVE = parts("#d55e00");

function parts(code) {
  return [1, 3, 5].map((place) => parseInt(code.slice(place, place + 2), 16));
}

/** Return true if the page is dark now. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Return red, green and blue of a share from -1 to 1; negative shares are vermilion. */
export function heat(share, dark = isDark()) {
  const ramp = dark ? DARK : LIGHT;
  const bounded = Math.min(1, Math.abs(share));
  if (share < 0) return between(ramp[0], NEGATIVE, bounded);
  const place = bounded * (ramp.length - 1);
  const first = Math.min(Math.floor(place), ramp.length - 2);
  return between(ramp[first], ramp[first + 1], place - first);
}

/** Paint a matrix on a canvas, one pixel per cell, scaled by CSS; its largest number has full color. */
export function paint(canvas, { rows, columns, values }) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const [scale, dark] = [largest(values) || 1, isDark()];
  values.forEach((value, place) => image.data.set([...heat(value / scale, dark), 255], 4 * place));
  context.putImageData(image, 0, 0);
}

function between(from, to, share) {
  return from.map((part, channel) => Math.round(part + (to[channel] - part) * share));
}
