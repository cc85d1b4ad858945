/** A matrix as a picture of one pixel a cell, which CSS makes as large as is wanted. */

import { largest } from "./arrays.js";
import { heat } from "./colours.js";

/** Paints a matrix on a canvas; full colour is the largest number of it, or `most`. */
export function paint(canvas, { rows, columns, values }, most = largest(values)) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const scale = most || 1;
  values.forEach((value, place) => {
    image.data.set([...heat(value / scale), 255], 4 * place);
  });
  context.putImageData(image, 0, 0);
}
